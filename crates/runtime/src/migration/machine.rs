//! The order of a move's steps, and how it is taken back. Pure: the caller carries out the orders.

use attach::moved::Step;

/// The next thing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Do(Step),
    /// Undo a step, also one that failed and may be half done.
    Undo(Step),
    /// Nothing: the offcodes are at their new place.
    Moved,
    /// Nothing: the offcodes are where they were.
    Back,
}

/// The state of a move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Machine {
    order: Order,
}

impl Default for Machine {
    fn default() -> Self {
        Machine { order: Order::Do(Step::ALL[0]) }
    }
}

impl Machine {
    pub fn order(&self) -> Order {
        self.order
    }

    /// Reports the outcome of the last order.
    pub fn came(&mut self, well: bool) {
        self.order = match self.order {
            Order::Do(Step::Release) => Order::Moved,
            Order::Do(step) if well => Order::Do(after(step)),
            Order::Do(step) => Order::Undo(step),
            // An undo that fails does not keep the rest from being undone.
            Order::Undo(step) => before(step).map_or(Order::Back, Order::Undo),
            done => done,
        };
    }
}

fn after(step: Step) -> Step {
    let at = Step::ALL.iter().position(|one| *one == step).unwrap_or_default();
    Step::ALL[(at + 1).min(Step::ALL.len() - 1)]
}

fn before(step: Step) -> Option<Step> {
    let at = Step::ALL.iter().position(|one| *one == step)?;
    Some(Step::ALL[at.checked_sub(1)?])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn orders(failing: Option<Step>) -> Vec<Order> {
        let (mut machine, mut orders) = (Machine::default(), Vec::new());
        loop {
            let order = machine.order();
            orders.push(order);
            if matches!(order, Order::Moved | Order::Back) {
                return orders;
            }
            machine.came(!matches!(order, Order::Do(step) if Some(step) == failing));
        }
    }

    #[test]
    fn what_was_begun_is_undone_in_reverse_until_the_commit() {
        let all: Vec<Order> = Step::ALL.map(Order::Do).into_iter().chain([Order::Moved]).collect();
        assert_eq!(orders(None), all);
        assert_eq!(orders(Some(Step::Release)), all, "what works at its new place is not taken back");
        for (n, &failing) in Step::ALL[..6].iter().enumerate() {
            let done = Step::ALL[..=n].iter().map(|&step| Order::Do(step));
            let undone = Step::ALL[..=n].iter().rev().map(|&step| Order::Undo(step));
            assert_eq!(orders(Some(failing)), done.chain(undone).chain([Order::Back]).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_cannot_be_undone_does_not_keep_the_rest() {
        let mut machine = Machine::default();
        machine.came(true);
        for _ in 0..3 {
            machine.came(false);
        }
        assert_eq!(machine.order(), Order::Back);
        machine.came(true);
        assert_eq!(machine.order(), Order::Back);
    }
}
