//! The loops of predefined reductions: one for each (operation, type), written so that the compiler vectorises them.
//!
//! Operands are arrays of bytes, read and written by value, so alignment does not matter. That the operation is
//! legal for the type was checked before; what is not legal leaves `into` as it is.
//!
//! The same loops are compiled twice, the second time for processors with AVX2. Both give the same bits: nothing is
//! contracted or reordered.
#![allow(unsafe_code)] // calls the second ones, once the processor is known to have what they need

use super::{Op, Type};

/// From this many bytes on wide registers are worth asking for.
#[cfg(all(target_arch = "x86_64", not(miri)))]
const WIDE_FROM: usize = 256;

/// `into[i] = f(from[i], into[i])` for elements of `N` bytes.
#[inline(always)]
fn each<const N: usize>(from: &[u8], into: &mut [u8], f: impl Fn([u8; N], [u8; N]) -> [u8; N]) {
    let (from, into) = (from.as_chunks::<N>().0, into.as_chunks_mut::<N>().0);
    for (from, into) in from.iter().zip(into) {
        *into = f(*from, *into);
    }
}

/// As `each`, on values of a type.
macro_rules! values {
    ($ty:ty, $from:expr, $into:expr, $f:expr) => {
        each::<{ size_of::<$ty>() }>($from, $into, |a, b| {
            let f: fn($ty, $ty) -> $ty = $f;
            f(<$ty>::from_ne_bytes(a), <$ty>::from_ne_bytes(b)).to_ne_bytes()
        })
    };
}

pub(super) fn apply(op: Op, ty: Type, from: &[u8], into: &mut [u8]) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if from.len() >= WIDE_FROM && is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has it.
        return unsafe { apply_wide(op, ty, from, into) };
    }
    loops(op, ty, from, into);
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[target_feature(enable = "avx2")]
fn apply_wide(op: Op, ty: Type, from: &[u8], into: &mut [u8]) {
    loops(op, ty, from, into);
}

#[inline(always)]
fn loops(op: Op, ty: Type, from: &[u8], into: &mut [u8]) {
    match op {
        Op::Replace => into.copy_from_slice(from),
        Op::NoOp => {}
        _ => match ty {
            Type::I8 => integer_i8(op, from, into),
            Type::I16 => integer_i16(op, from, into),
            Type::I32 => integer_i32(op, from, into),
            Type::I64 => integer_i64(op, from, into),
            Type::U8 | Type::Byte => integer_u8(op, from, into),
            Type::U16 => integer_u16(op, from, into),
            Type::U32 => integer_u32(op, from, into),
            Type::U64 => integer_u64(op, from, into),
            Type::F32 => float_f32(op, from, into),
            Type::F64 => float_f64(op, from, into),
            Type::Bool => integer_u8(op, from, into),
            Type::C32 => complex_f32(op, from, into),
            Type::C64 => complex_f64(op, from, into),
            Type::FloatInt => pair_f32(op, from, into),
            Type::DoubleInt => pair_f64(op, from, into),
            Type::LongInt => pair_i64(op, from, into),
            Type::TwoInt => pair_i32(op, from, into),
            Type::ShortInt => pair_i16(op, from, into),
        },
    }
}

macro_rules! integers {
    ($($name:ident: $ty:ty,)+) => { $(
        #[inline(always)]
        fn $name(op: Op, from: &[u8], into: &mut [u8]) {
            match op {
                Op::Sum => values!($ty, from, into, |a, b| a.wrapping_add(b)),
                Op::Prod => values!($ty, from, into, |a, b| a.wrapping_mul(b)),
                Op::Min => values!($ty, from, into, |a, b| if a < b { a } else { b }),
                Op::Max => values!($ty, from, into, |a, b| if a > b { a } else { b }),
                Op::Land => values!($ty, from, into, |a, b| ((a != 0) & (b != 0)) as $ty),
                Op::Lor => values!($ty, from, into, |a, b| ((a != 0) | (b != 0)) as $ty),
                Op::Lxor => values!($ty, from, into, |a, b| ((a != 0) ^ (b != 0)) as $ty),
                Op::Band => values!($ty, from, into, |a, b| a & b),
                Op::Bor => values!($ty, from, into, |a, b| a | b),
                Op::Bxor => values!($ty, from, into, |a, b| a ^ b),
                Op::Minloc | Op::Maxloc | Op::Replace | Op::NoOp => {}
            }
        }
    )+ };
}

integers! {
    integer_i8: i8, integer_i16: i16, integer_i32: i32, integer_i64: i64,
    integer_u8: u8, integer_u16: u16, integer_u32: u32, integer_u64: u64,
}

macro_rules! floats {
    ($($name:ident: $ty:ty,)+) => { $(
        #[inline(always)]
        fn $name(op: Op, from: &[u8], into: &mut [u8]) {
            match op {
                Op::Sum => values!($ty, from, into, |a, b| a + b),
                Op::Prod => values!($ty, from, into, |a, b| a * b),
                // As the processor's instruction; `f32::min` would cost a second comparison for NaN.
                Op::Min => values!($ty, from, into, |a, b| if a < b { a } else { b }),
                Op::Max => values!($ty, from, into, |a, b| if a > b { a } else { b }),
                _ => {}
            }
        }
    )+ };
}

floats! { float_f32: f32, float_f64: f64, }

macro_rules! complexes {
    ($($name:ident: $ty:ty, $size:literal,)+) => { $(
        #[inline(always)]
        fn $name(op: Op, from: &[u8], into: &mut [u8]) {
            const HALF: usize = $size / 2;
            fn split(bytes: [u8; $size]) -> ($ty, $ty) {
                let (re, im) = (bytes.first_chunk::<HALF>(), bytes.last_chunk::<HALF>());
                let half = |part: Option<&[u8; HALF]>| part.map_or(0.0, |part| <$ty>::from_ne_bytes(*part));
                (half(re), half(im))
            }
            fn join(re: $ty, im: $ty) -> [u8; $size] {
                let mut bytes = [0; $size];
                bytes[..HALF].copy_from_slice(&re.to_ne_bytes());
                bytes[HALF..].copy_from_slice(&im.to_ne_bytes());
                bytes
            }
            match op {
                // Component by component.
                Op::Sum => values!($ty, from, into, |a, b| a + b),
                Op::Prod => each::<$size>(from, into, |a, b| {
                    let ((ar, ai), (br, bi)) = (split(a), split(b));
                    join(ar * br - ai * bi, ar * bi + ai * br)
                }),
                _ => {}
            }
        }
    )+ };
}

complexes! { complex_f32: f32, 8, complex_f64: f64, 16, }

/// Pairs of a value and an `int` index, laid out as C does: the index at a multiple of 4, padding at the end.
macro_rules! pairs {
    ($($name:ident: $ty:ty, $extent:literal, $index:literal,)+) => { $(
        #[inline(always)]
        fn $name(op: Op, from: &[u8], into: &mut [u8]) {
            const VALUE: usize = size_of::<$ty>();
            fn split(bytes: &[u8; $extent]) -> ($ty, i32) {
                let value = bytes.first_chunk::<VALUE>().map_or(<$ty>::default(), |v| <$ty>::from_ne_bytes(*v));
                let index = bytes[$index..].first_chunk::<4>().map_or(0, |i| i32::from_ne_bytes(*i));
                (value, index)
            }
            match op {
                Op::Minloc => each::<$extent>(from, into, |a, b| {
                    let ((av, ai), (bv, bi)) = (split(&a), split(&b));
                    if av < bv || av == bv && ai < bi { a } else { b }
                }),
                Op::Maxloc => each::<$extent>(from, into, |a, b| {
                    let ((av, ai), (bv, bi)) = (split(&a), split(&b));
                    if av > bv || av == bv && ai < bi { a } else { b }
                }),
                _ => {}
            }
        }
    )+ };
}

pairs! {
    pair_f32: f32, 8, 4,
    pair_f64: f64, 16, 8,
    pair_i64: i64, 16, 8,
    pair_i32: i32, 8, 4,
    pair_i16: i16, 8, 4,
}

#[cfg(test)]
mod tests {
    use super::super::{Op, Reduction, Type};
    use crate::CollError;

    /// Applies to values at every alignment and many lengths, and compares with the plain operation.
    macro_rules! check {
        ($op:ident, $ty:ident: $t:ty, $f:expr) => {{
            let f: fn($t, $t) -> $t = $f;
            let value =
                |i: usize| (i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(40) % 97;
            for count in [0usize, 1, 3, 8, 17, 64, 131, 700] {
                for shift in [0, 1, 3] {
                    let a: Vec<$t> = (0..count).map(|i| value(i) as u8 as $t).collect();
                    let b: Vec<$t> = (0..count).map(|i| value(i + 777) as u8 as $t).collect();
                    let bytes = |values: &[$t], shift: usize| {
                        let mut bytes = vec![0xEE; shift];
                        values.iter().for_each(|v| bytes.extend_from_slice(&v.to_ne_bytes()));
                        bytes.push(0xEE);
                        bytes
                    };
                    let len = count * size_of::<$t>();
                    let (from, mut into) = (bytes(&a, 3 - shift), bytes(&b, shift));
                    let from = &from[3 - shift..][..len];
                    Op::$op.apply(Type::$ty, from, &mut into[shift..][..len]).expect("legal");
                    let want: Vec<$t> = a.iter().zip(&b).map(|(a, b)| f(*a, *b)).collect();
                    assert_eq!(into, bytes(&want, shift), "{} of {}", Op::$op, Type::$ty);
                }
            }
        }};
    }

    macro_rules! check_integers {
        ($($ty:ident: $t:ty),+) => { $(
            check!(Sum, $ty: $t, |a, b| a.wrapping_add(b));
            check!(Prod, $ty: $t, |a, b| a.wrapping_mul(b));
            check!(Min, $ty: $t, |a, b| a.min(b));
            check!(Max, $ty: $t, |a, b| a.max(b));
            check!(Land, $ty: $t, |a, b| (a != 0 && b != 0).into());
            check!(Lor, $ty: $t, |a, b| (a != 0 || b != 0).into());
            check!(Lxor, $ty: $t, |a, b| ((a != 0) != (b != 0)).into());
            check!(Band, $ty: $t, |a, b| a & b);
            check!(Bor, $ty: $t, |a, b| a | b);
            check!(Bxor, $ty: $t, |a, b| a ^ b);
        )+ };
    }

    #[test]
    fn numbers_at_any_alignment() {
        check_integers!(I8: i8, I16: i16, I32: i32, I64: i64, U8: u8, U16: u16, U32: u32, U64: u64);
        check!(Sum, F32: f32, |a, b| a + b);
        check!(Prod, F32: f32, |a, b| a * b);
        check!(Min, F32: f32, |a, b| a.min(b));
        check!(Max, F32: f32, |a, b| a.max(b));
        check!(Sum, F64: f64, |a, b| a + b);
        check!(Prod, F64: f64, |a, b| a * b);
        check!(Min, F64: f64, |a, b| a.min(b));
        check!(Max, F64: f64, |a, b| a.max(b));
    }

    #[test]
    fn complex_sums_and_products() {
        let bytes = |values: [f32; 4]| values.map(f32::to_ne_bytes).concat();
        let (a, mut b) = (bytes([1.0, 2.0, 0.0, 1.0]), bytes([3.0, -1.0, 0.0, 1.0]));
        Op::Prod.apply(Type::C32, &a, &mut b).expect("legal");
        assert_eq!(b, bytes([5.0, 5.0, -1.0, 0.0]));
        Op::Sum.apply(Type::C32, &a, &mut b).expect("legal");
        assert_eq!(b, bytes([6.0, 7.0, -1.0, 1.0]));
    }

    #[test]
    fn pairs_keep_the_smaller_index_of_equals() {
        let pair = |value: f64, index: i32| {
            let mut bytes = value.to_ne_bytes().to_vec();
            bytes.extend_from_slice(&index.to_ne_bytes());
            bytes.extend_from_slice(&[7; 4]);
            bytes
        };
        let join = |a, b| {
            let mut into = [pair(2.0, 5), pair(4.0, 1), pair(3.0, 9)].concat();
            let from = [pair(2.0, a), pair(1.0, b), pair(5.0, 8)].concat();
            let mut most = into.clone();
            Op::Minloc.apply(Type::DoubleInt, &from, &mut into).expect("legal");
            Op::Maxloc.apply(Type::DoubleInt, &from, &mut most).expect("legal");
            (into, most)
        };
        let (least, most) = join(3, 2);
        assert_eq!(least, [pair(2.0, 3), pair(1.0, 2), pair(3.0, 9)].concat());
        assert_eq!(most, [pair(2.0, 3), pair(4.0, 1), pair(5.0, 8)].concat());
        let short = |value: i16, index: i32| {
            [&value.to_ne_bytes()[..], &[0, 0], &index.to_ne_bytes()].concat()
        };
        let mut into = short(-3, 6);
        Op::Minloc.apply(Type::ShortInt, &short(-3, 2), &mut into).expect("legal");
        assert_eq!(into, short(-3, 2));
    }

    #[test]
    fn illegal_pairs_are_named() {
        let error = Reduction::new(Op::Band, Type::F64).expect_err("no bits of floats");
        assert_eq!(error.to_string(), "MPI_BAND is not defined for MPI_DOUBLE");
        assert!(matches!(
            Op::Sum.apply(Type::TwoInt, &[0; 8], &mut [0; 8]),
            Err(CollError::IllegalOp { .. })
        ));
        assert!(Reduction::new(Op::Replace, Type::I32).is_err(), "windows only");
        let mut into = [1, 2];
        Op::Replace.apply(Type::Byte, &[8, 9], &mut into).expect("legal in windows");
        Op::NoOp.apply(Type::Byte, &[4, 4], &mut into).expect("legal in windows");
        assert_eq!(into, [8, 9]);
    }

    #[test]
    fn what_is_legal_does_something() {
        for &ty in Type::ALL {
            for &op in Op::ALL.iter().filter(|op| op.is_legal(ty)) {
                // 1 ∘ 2 and 2 ∘ 1: at least one of them changes its right operand.
                let element = |low: u8| {
                    let mut bytes = vec![0; ty.extent()];
                    bytes[0] = low;
                    match ty {
                        Type::F32 | Type::C32 | Type::FloatInt => {
                            bytes[..4].copy_from_slice(&f32::from(low + 1).to_ne_bytes());
                        }
                        Type::F64 | Type::C64 | Type::DoubleInt => {
                            bytes[..8].copy_from_slice(&f64::from(low + 1).to_ne_bytes());
                        }
                        _ => {}
                    }
                    bytes
                };
                let mut changed = false;
                for (a, b) in [(1, 2), (2, 1), (3, 3), (0, 3), (3, 0)] {
                    let mut into = element(b);
                    op.apply(ty, &element(a), &mut into).expect("legal");
                    changed |= into != element(b);
                }
                assert!(changed, "{op} of {ty} has no loop");
            }
        }
    }
}
