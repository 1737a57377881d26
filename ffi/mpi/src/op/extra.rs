//! Reductions of types that schedules have no loops for: `long double`, alone and complex, and Fortran's pairs.

use crate::abi::*;
use ironweave_coll::{Op, Reduction};
use std::sync::Arc;

/// The operation on one of these types; `None` where it is not defined, or this machine has no such arithmetic.
pub fn reduction(op: Op, datatype: MPI_Datatype) -> Option<Reduction> {
    match datatype {
        MPI_2REAL => pairs::<4>(op, |a, b| f32::from_ne_bytes(a) < f32::from_ne_bytes(b)),
        MPI_2DOUBLE_PRECISION => {
            pairs::<8>(op, |a, b| f64::from_ne_bytes(a) < f64::from_ne_bytes(b))
        }
        MPI_LONG_DOUBLE => extended::real(op),
        MPI_LONG_DOUBLE_INT => extended::located(op),
        MPI_C_LONG_DOUBLE_COMPLEX | MPI_CXX_LONG_DOUBLE_COMPLEX => extended::complex(op),
        _ => None,
    }
}

fn commutative(
    extent: usize,
    each: impl Fn(&[u8], &mut [u8]) + Send + Sync + 'static,
) -> Option<Reduction> {
    let all = move |from: &[u8], into: &mut [u8]| {
        for (from, into) in from.chunks_exact(extent).zip(into.chunks_exact_mut(extent)) {
            each(from, into);
        }
    };
    Reduction::user(extent, true, Arc::new(all)).ok()
}

/// A value and its index, both of `N` bytes and of the same type (§6.9.4): the smaller index where values are equal.
fn pairs<const N: usize>(op: Op, less: fn([u8; N], [u8; N]) -> bool) -> Option<Reduction> {
    let smallest = match op {
        Op::Minloc => true,
        Op::Maxloc => false,
        _ => return None,
    };
    let half = |pair: &[u8], at: usize| -> [u8; N] {
        let mut half = [0; N];
        half.copy_from_slice(&pair[at..at + N]);
        half
    };
    commutative(2 * N, move |from, into| {
        let (a, b) = (half(from, 0), half(into, 0));
        let better = if smallest { less(a, b) } else { less(b, a) };
        let equal = !less(a, b) && !less(b, a);
        if better || (equal && less(half(from, N), half(into, N))) {
            into.copy_from_slice(from);
        }
    })
}

/// x87's arithmetic: Rust has no type for it.
#[cfg(target_arch = "x86_64")]
mod extended {
    use super::commutative;
    use ironweave_coll::{Op, Reduction};
    use std::arch::asm;

    /// Bytes of a `long double`, of which ten count.
    const SIZE: usize = 16;

    macro_rules! arithmetic {
        ($($name:ident $instruction:literal)*) => {$(
            /// `into = from ∘ into`.
            fn $name(from: &[u8], into: &mut [u8]) {
                assert!(from.len() >= 10 && into.len() >= 10);
                // SAFETY: both are long enough, and the stack of the unit is left as it was.
                unsafe {
                    asm!(
                        "fld tbyte ptr [{from}]",
                        "fld tbyte ptr [{into}]",
                        $instruction,
                        "fstp tbyte ptr [{into}]",
                        from = in(reg) from.as_ptr(),
                        into = in(reg) into.as_mut_ptr(),
                        out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                        out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                        options(nostack),
                    );
                }
            }
        )*};
    }

    arithmetic! {
        add "faddp st(1), st"
        multiply "fmulp st(1), st"
        subtract "fsubp st(1), st"
    }

    /// Whether `a < b`; not when either is no number.
    fn less(a: &[u8], b: &[u8]) -> bool {
        assert!(a.len() >= 10 && b.len() >= 10);
        let below: u8;
        // SAFETY: both are long enough, and the stack of the unit is left as it was.
        unsafe {
            asm!(
                "fld tbyte ptr [{a}]",
                "fld tbyte ptr [{b}]",
                "fcomip st, st(1)",
                "seta {below}",
                "fstp st(0)",
                a = in(reg) a.as_ptr(),
                b = in(reg) b.as_ptr(),
                below = out(reg_byte) below,
                out("st(0)") _, out("st(1)") _, out("st(2)") _, out("st(3)") _,
                out("st(4)") _, out("st(5)") _, out("st(6)") _, out("st(7)") _,
                options(nostack),
            );
        }
        below != 0
    }

    pub fn real(op: Op) -> Option<Reduction> {
        match op {
            Op::Sum => commutative(SIZE, add),
            Op::Prod => commutative(SIZE, multiply),
            Op::Min => commutative(SIZE, |from, into| {
                if less(from, into) {
                    into.copy_from_slice(from);
                }
            }),
            Op::Max => commutative(SIZE, |from, into| {
                if less(into, from) {
                    into.copy_from_slice(from);
                }
            }),
            _ => None,
        }
    }

    pub fn located(op: Op) -> Option<Reduction> {
        let smallest = match op {
            Op::Minloc => true,
            Op::Maxloc => false,
            _ => return None,
        };
        let index = |pair: &[u8]| i32::from_ne_bytes([pair[16], pair[17], pair[18], pair[19]]);
        commutative(2 * SIZE, move |from, into| {
            let (below, above) = (less(from, into), less(into, from));
            let better = if smallest { below } else { above };
            if better || (!below && !above && index(from) < index(into)) {
                into.copy_from_slice(from);
            }
        })
    }

    pub fn complex(op: Op) -> Option<Reduction> {
        match op {
            Op::Sum => commutative(2 * SIZE, |from, into| {
                add(&from[..SIZE], &mut into[..SIZE]);
                add(&from[SIZE..], &mut into[SIZE..]);
            }),
            Op::Prod => commutative(2 * SIZE, |from, into| {
                let (a, b) = from.split_at(SIZE);
                let mut re = [0; SIZE];
                let (mut ad, mut bc) = ([0; SIZE], [0; SIZE]);
                let mut bd = [0; SIZE];
                let (c, d) = into.split_at_mut(SIZE);
                re.copy_from_slice(c);
                multiply(a, &mut re);
                bd.copy_from_slice(d);
                multiply(b, &mut bd);
                ad.copy_from_slice(d);
                multiply(a, &mut ad);
                bc.copy_from_slice(c);
                multiply(b, &mut bc);
                // (a + bi)(c + di) = (ac - bd) + (ad + bc)i
                subtract(&re, &mut bd);
                c.copy_from_slice(&bd);
                add(&ad, &mut bc);
                d.copy_from_slice(&bc);
            }),
            _ => None,
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        /// A small integer as a `long double`.
        fn number(value: i64) -> [u8; SIZE] {
            let mut out = [0; SIZE];
            if value != 0 {
                let size = value.unsigned_abs();
                let shift = size.leading_zeros();
                out[..8].copy_from_slice(&(size << shift).to_le_bytes());
                let exponent = 16383 + 63 - shift as u16;
                let sign = if value < 0 { 0x8000 } else { 0 };
                out[8..10].copy_from_slice(&(exponent | sign).to_le_bytes());
            }
            out
        }

        fn apply(op: fn(&[u8], &mut [u8]), a: i64, b: i64) -> [u8; SIZE] {
            let mut into = number(b);
            op(&number(a), &mut into);
            into
        }

        #[test]
        fn arithmetic_is_right() {
            for (a, b) in [(1, 2), (7, -3), (-12, -5), (0, 4), (1 << 40, 3), (6, 6)] {
                assert_eq!(apply(add, a, b)[..10], number(a + b)[..10], "{a} + {b}");
                assert_eq!(apply(multiply, a, b)[..10], number(a * b)[..10], "{a} * {b}");
                assert_eq!(apply(subtract, a, b)[..10], number(a - b)[..10], "{a} - {b}");
                assert_eq!(less(&number(a), &number(b)), a < b, "{a} < {b}");
            }
        }

        #[test]
        fn complex_products_are_right() {
            let pair = |re, im| [number(re), number(im)].concat();
            let mut into = pair(3, -4);
            let product = complex(Op::Prod).expect("defined");
            product.combine(&pair(2, 5), &mut into);
            assert_eq!(into[..10], number(26)[..10]);
            assert_eq!(into[16..26], number(7)[..10]);
        }
    }
}

/// Other machines' `long double` is no type of Rust's either.
#[cfg(not(target_arch = "x86_64"))]
mod extended {
    use ironweave_coll::{Op, Reduction};

    pub fn real(_: Op) -> Option<Reduction> {
        None
    }

    pub fn located(_: Op) -> Option<Reduction> {
        None
    }

    pub fn complex(_: Op) -> Option<Reduction> {
        None
    }
}
