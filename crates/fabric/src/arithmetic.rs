//! Operators and datatypes of atomic operations, applied to memory; see fi_atomic(3).

use std::ffi::c_int;

/// `enum fi_datatype`, as far as it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Datatype {
    I8,
    U8,
    I16,
    U16,
    I32,
    U32,
    I64,
    U64,
    F32,
    F64,
}

/// `enum fi_op`, as far as it is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    Min,
    Max,
    Sum,
    Product,
    LogicalOr,
    LogicalAnd,
    Or,
    And,
    LogicalXor,
    Xor,
    Read,
    Write,
    /// Swaps if the comparand is equal to, unequal to, ... the target.
    Swap(Comparison),
    /// Swaps the bits that are set in the comparand.
    MaskedSwap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Comparison {
    Equal,
    Unequal,
    LessOrEqual,
    Less,
    GreaterOrEqual,
    Greater,
}

impl Datatype {
    pub fn of(number: c_int) -> Option<Datatype> {
        use Datatype::*;
        [I8, U8, I16, U16, I32, U32, I64, U64, F32, F64].get(usize::try_from(number).ok()?).copied()
    }

    /// The inverse of [`Datatype::of`].
    pub fn number(self) -> u8 {
        self as u8
    }

    pub fn size(self) -> usize {
        match self {
            Datatype::I8 | Datatype::U8 => 1,
            Datatype::I16 | Datatype::U16 => 2,
            Datatype::I32 | Datatype::U32 | Datatype::F32 => 4,
            Datatype::I64 | Datatype::U64 | Datatype::F64 => 8,
        }
    }

    fn is_float(self) -> bool {
        matches!(self, Datatype::F32 | Datatype::F64)
    }
}

/// Operators by number.
const OPERATORS: [Operator; 19] = {
    use Comparison::*;
    use Operator::*;
    [
        Min,
        Max,
        Sum,
        Product,
        LogicalOr,
        LogicalAnd,
        Or,
        And,
        LogicalXor,
        Xor,
        Read,
        Write,
        Swap(Equal),
        Swap(Unequal),
        Swap(LessOrEqual),
        Swap(Less),
        Swap(GreaterOrEqual),
        Swap(Greater),
        MaskedSwap,
    ]
};

impl Operator {
    pub fn of(number: c_int) -> Option<Operator> {
        OPERATORS.get(usize::try_from(number).ok()?).copied()
    }

    /// The inverse of [`Operator::of`].
    pub fn number(self) -> u8 {
        OPERATORS.iter().position(|&operator| operator == self).expect("all are listed") as u8
    }

    /// Whether it takes a comparand besides its operand.
    pub fn compares(self) -> bool {
        matches!(self, Operator::Swap(_) | Operator::MaskedSwap)
    }

    /// Whether the operation exists for this type: bits of floating-point numbers are not combined.
    pub fn serves(self, datatype: Datatype) -> bool {
        !datatype.is_float() || !matches!(self, Operator::Or | Operator::And | Operator::Xor | Operator::MaskedSwap)
    }
}

trait Number: Copy + PartialOrd {
    const ZERO: Self;
    const ONE: Self;
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn bits(self) -> u64;
    fn from_bits(bits: u64) -> Self;
    fn from_bytes(bytes: &[u8]) -> Self;
    fn put(self, into: &mut [u8]);
}

macro_rules! number {
    ($($type:ty, $zero:expr, $one:expr, $sum:expr, $product:expr, $bits:expr, $from_bits:expr;)*) => {
        $(impl Number for $type {
            const ZERO: Self = $zero;
            const ONE: Self = $one;

            fn sum(self, other: Self) -> Self {
                $sum(self, other)
            }

            fn product(self, other: Self) -> Self {
                $product(self, other)
            }

            fn bits(self) -> u64 {
                $bits(self)
            }

            fn from_bits(bits: u64) -> Self {
                $from_bits(bits)
            }

            fn from_bytes(bytes: &[u8]) -> Self {
                Self::from_ne_bytes(bytes.try_into().expect("as long as the type"))
            }

            fn put(self, into: &mut [u8]) {
                into.copy_from_slice(&self.to_ne_bytes());
            }
        })*
    };
}

macro_rules! integers {
    ($($type:ty)*) => {
        number! { $($type, 0, 1, <$type>::wrapping_add, <$type>::wrapping_mul, |x: $type| x as u64, |x: u64| x as $type;)* }
    };
}

integers! { i8 u8 i16 u16 i32 u32 i64 u64 }
number! {
    f32, 0.0, 1.0, |a: f32, b| a + b, |a: f32, b| a * b, |x: f32| u64::from(x.to_bits()), |x: u64| f32::from_bits(x as u32);
    f64, 0.0, 1.0, |a: f64, b| a + b, |a: f64, b| a * b, f64::to_bits, f64::from_bits;
}

fn truth<N: Number>(held: bool) -> N {
    if held { N::ONE } else { N::ZERO }
}

fn result<N: Number>(operator: Operator, target: N, operand: N, comparand: N) -> N {
    let is = |number: N| number != N::ZERO;
    match operator {
        Operator::Min => {
            if operand < target {
                operand
            } else {
                target
            }
        }
        Operator::Max => {
            if operand > target {
                operand
            } else {
                target
            }
        }
        Operator::Sum => target.sum(operand),
        Operator::Product => target.product(operand),
        Operator::LogicalOr => truth(is(target) || is(operand)),
        Operator::LogicalAnd => truth(is(target) && is(operand)),
        Operator::LogicalXor => truth(is(target) != is(operand)),
        Operator::Or => N::from_bits(target.bits() | operand.bits()),
        Operator::And => N::from_bits(target.bits() & operand.bits()),
        Operator::Xor => N::from_bits(target.bits() ^ operand.bits()),
        Operator::Read => target,
        Operator::Write => operand,
        Operator::Swap(comparison) => {
            let holds = match comparison {
                Comparison::Equal => comparand == target,
                Comparison::Unequal => comparand != target,
                Comparison::LessOrEqual => comparand <= target,
                Comparison::Less => comparand < target,
                Comparison::GreaterOrEqual => comparand >= target,
                Comparison::Greater => comparand > target,
            };
            if holds { operand } else { target }
        }
        Operator::MaskedSwap => {
            let mask = comparand.bits();
            N::from_bits(operand.bits() & mask | target.bits() & !mask)
        }
    }
}

fn apply_all<N: Number>(operator: Operator, target: &mut [u8], operands: &[u8], comparands: &[u8]) {
    let size = size_of::<N>();
    for (at, place) in target.chunks_exact_mut(size).enumerate() {
        let range = at * size..(at + 1) * size;
        let value = N::from_bytes(place);
        let operand = operands.get(range.clone()).map_or(N::ZERO, N::from_bytes);
        let comparand = comparands.get(range).map_or(N::ZERO, N::from_bytes);
        result(operator, value, operand, comparand).put(place);
    }
}

/// Applies the operation to every element of `target`. Operands and comparands are as long, or empty if the operation takes
/// none.
pub fn apply(datatype: Datatype, operator: Operator, target: &mut [u8], operands: &[u8], comparands: &[u8]) {
    let all = match datatype {
        Datatype::I8 => apply_all::<i8>,
        Datatype::U8 => apply_all::<u8>,
        Datatype::I16 => apply_all::<i16>,
        Datatype::U16 => apply_all::<u16>,
        Datatype::I32 => apply_all::<i32>,
        Datatype::U32 => apply_all::<u32>,
        Datatype::I64 => apply_all::<i64>,
        Datatype::U64 => apply_all::<u64>,
        Datatype::F32 => apply_all::<f32>,
        Datatype::F64 => apply_all::<f64>,
    };
    all(operator, target, operands, comparands);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(datatype: Datatype, operator: Operator, target: &[u8], operand: &[u8], comparand: &[u8]) -> Vec<u8> {
        let mut target = target.to_vec();
        apply(datatype, operator, &mut target, operand, comparand);
        target
    }

    #[test]
    fn sums_wrap_and_minima_know_the_sign() {
        assert_eq!(run(Datatype::U8, Operator::Sum, &[250, 1], &[10, 2], &[]), [4, 3]);
        assert_eq!(run(Datatype::I8, Operator::Min, &[1], &[0xff], &[]), [0xff]);
        assert_eq!(run(Datatype::U8, Operator::Min, &[1], &[0xff], &[]), [1]);
        let sum = run(Datatype::F64, Operator::Sum, &1.5f64.to_ne_bytes(), &2.25f64.to_ne_bytes(), &[]);
        assert_eq!(sum, 3.75f64.to_ne_bytes());
    }

    #[test]
    fn logic_gives_0_or_1() {
        let truth = |operator, a: i32, b: i32| {
            let bytes = run(Datatype::I32, operator, &a.to_ne_bytes(), &b.to_ne_bytes(), &[]);
            i32::from_ne_bytes(bytes.try_into().unwrap())
        };
        assert_eq!(truth(Operator::LogicalAnd, 7, -2), 1);
        assert_eq!(truth(Operator::LogicalAnd, 7, 0), 0);
        assert_eq!(truth(Operator::LogicalXor, 7, 9), 0);
        assert_eq!(truth(Operator::LogicalOr, 0, 0), 0);
        assert_eq!(truth(Operator::Xor, 6, 3), 5);
    }

    #[test]
    fn swaps_compare_the_comparand_with_the_target() {
        let swap = |comparison, comparand: u64| {
            let bytes = run(
                Datatype::U64,
                Operator::Swap(comparison),
                &10u64.to_ne_bytes(),
                &99u64.to_ne_bytes(),
                &comparand.to_ne_bytes(),
            );
            u64::from_ne_bytes(bytes.try_into().unwrap()) == 99
        };
        assert!(swap(Comparison::Equal, 10) && !swap(Comparison::Equal, 11));
        assert!(swap(Comparison::Less, 9) && !swap(Comparison::Less, 10));
        assert!(swap(Comparison::GreaterOrEqual, 10) && !swap(Comparison::GreaterOrEqual, 9));
        assert_eq!(run(Datatype::U8, Operator::MaskedSwap, &[0b1010], &[0b0101], &[0b0011]), [0b1001]);
    }

    #[test]
    fn numbers_are_those_of_the_headers() {
        assert_eq!(Datatype::of(9), Some(Datatype::F64));
        assert_eq!((Datatype::of(10), Datatype::of(-1)), (None, None));
        assert_eq!(Operator::of(12), Some(Operator::Swap(Comparison::Equal)));
        assert_eq!((Operator::of(18), Operator::of(19)), (Some(Operator::MaskedSwap), None));
    }
}
