use super::*;
use crate::claims::draws;

/// Figure 10: X on an interrupt core, Y on another, exchanging and computing alike. Y's host has no rank that takes interrupts.
fn partners(stack: &Stack) -> Vec<Stay> {
    let places = [Place { host: 0, core: 0 }, Place { host: 1, core: 2 }];
    let op = |peer| {
        vec![
            Op::Compute(0.004),
            Op::Send { to: peer, bytes: MESSAGE, bounded: true },
            Op::Receive { from: peer, bytes: MESSAGE },
        ]
    };
    replay(&places, &[op(1), op(0)], 40, stack).unwrap()
}

/// Of B1's two solutions the one that makes the interrupt core slow, with less room than a message needs.
fn small_buffers() -> Stack {
    let rows = Calibration::of_papers();
    let stacks = draws::swept(16, |draw| stack(&rows, draw).unwrap());
    let stack = stacks.into_iter().find(|stack| stack.softirq > stack.drain[0]).unwrap();
    Stack { library: MESSAGE / 2, socket: 64 * 1024, ..stack }
}

/// How long, of the run, the one is blocked in a call of `kind` while the other computes.
fn blocked_while_other_computes(stays: &[Stay], rank: usize, kind: fn(&Op) -> bool) -> f64 {
    let of = |rank: usize, kind: &dyn Fn(&Op) -> bool| {
        stays
            .iter()
            .filter(|stay| stay.rank == rank && kind(&stay.op))
            .map(|stay| (stay.from, stay.to))
            .collect::<Vec<_>>()
    };
    let computing = of(1 - rank, &|op| matches!(op, Op::Compute(_)));
    let overlap = |(from, to): (f64, f64)| {
        computing.iter().map(|other| (to.min(other.1) - from.max(other.0)).max(0.0)).sum::<f64>()
    };
    let end = stays.iter().map(|stay| stay.to).fold(0.0, f64::max);
    of(rank, &kind).into_iter().map(overlap).sum::<f64>() / end
}

fn sends(op: &Op) -> bool {
    matches!(op, Op::Send { .. })
}

fn waits(op: &Op) -> bool {
    matches!(op, Op::Receive { .. })
}

#[test]
fn partners_run_out_of_phase_with_finite_buffers() {
    let stays = partners(&small_buffers());
    let (x_waits, y_sends) =
        (blocked_while_other_computes(&stays, 0, waits), blocked_while_other_computes(&stays, 1, sends));
    assert!(x_waits > 0.25, "X waits {x_waits:.3} of the run while Y computes");
    assert!(y_sends > 0.25, "Y is blocked in sends {y_sends:.3} of the run while X computes");
}

#[test]
fn they_do_not_with_infinite_buffers_or_a_thread() {
    let small = small_buffers();
    let without = [
        ("infinite buffers", Stack { library: u64::MAX / 2, socket: u64::MAX / 2, ..small }),
        ("a thread", Stack { progress: Progress::Thread, ..small }),
    ];
    for (what, stack) in without {
        let stays = partners(&stack);
        let y_sends = blocked_while_other_computes(&stays, 1, sends);
        let x_waits = blocked_while_other_computes(&stays, 0, waits);
        assert!(y_sends < 0.08, "{what}: Y is blocked in sends {y_sends:.3} of the run while X computes");
        assert!(x_waits < 0.08, "{what}: X waits {x_waits:.3} of the run while Y computes");
    }
}

/// All that is sent is received, no stay runs backwards, and no rank computes faster than its core.
#[test]
fn replays_conserve_time() {
    let rows = Calibration::of_papers();
    for stack in draws::swept(4, |draw| stack(&rows, draw).unwrap()) {
        let program = lammps(0.005);
        let stays = run(&LAMMPS[0], &program, &stack).unwrap();
        assert_eq!(stays.len(), RANKS * STEPS * program[0].len());
        for rank in 0..RANKS {
            let own: Vec<&Stay> = stays.iter().filter(|stay| stay.rank == rank).collect();
            assert!(own.windows(2).all(|pair| pair[0].to == pair[1].from && pair[0].from <= pair[0].to));
            let computing = own.iter().filter(|stay| matches!(stay.op, Op::Compute(_)));
            assert!(computing.clone().all(|stay| stay.to - stay.from >= 0.005 - 1e-9));
            assert_eq!(own[0].from, 0.0);
        }
    }
}

#[test]
fn a_receive_without_its_send_is_a_fault() {
    let stack = small_buffers();
    let program = [vec![Op::Receive { from: 1, bytes: 1 }], vec![Op::Compute(0.001)]];
    let places = [Place { host: 0, core: 0 }, Place { host: 0, core: 2 }];
    assert_eq!(replay(&places, &program, 1, &stack).unwrap_err().subject(), "rank 0");
}

/// A stream from one host to the other gives B1's bandwidth back, on each kind of core: the replay spends what the closed form does.
#[test]
fn a_stream_has_the_bandwidth_that_its_costs_were_fitted_to() {
    let rows = Calibration::of_papers();
    for stack in draws::swept(8, |draw| stack(&rows, draw).unwrap()) {
        // The receiving end is the bottleneck.
        let hand = stack.drain.map(|cost| cost / 2.0);
        let stack = Stack { hand, acknowledge: 0.0, library: u64::MAX, socket: 1 << 20, ..stack };
        for (core, name) in [(0, "interrupt"), (1, "other-socket"), (2, "same-socket")] {
            let program = [
                vec![Op::Send { to: 1, bytes: MESSAGE, bounded: true }],
                vec![Op::Receive { from: 0, bytes: MESSAGE }],
            ];
            let messages = 100;
            let stays = replay(&[0, 1].map(|host| Place { host, core }), &program, messages, &stack).unwrap();
            let end = stays.iter().map(|stay| stay.to).fold(0.0, f64::max);
            let gigabits = 8e-9 * (messages as u64 * MESSAGE) as f64 / end;
            let published = rows.range(&format!("tcp/bandwidth/{name}")).unwrap();
            let within = 0.97 * published.low..=1.03 * published.high;
            assert!(within.contains(&gigabits), "{name}: {gigabits:.2} Gb/s of {published:?}, {stack:?}");
        }
    }
}
