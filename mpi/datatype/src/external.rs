//! The external32 representation of basic types (MPI 5.0, section 15.5.2): big-endian, fixed sizes, IEEE floating point.
//!
//! Converts runs of one basic type between packed native bytes and external32. Integers that external32 holds in fewer
//! bytes (`long`, `wchar_t`) lose their upper bits. Knows no memory but the slices it is given.

use crate::basic::{Basic, Scalar};

/// Which way to convert.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    /// Native bytes to external32.
    Out,
    /// External32 to native bytes.
    In,
}

impl Direction {
    /// Bytes of one scalar before and after the conversion.
    fn sizes(self, scalar: Scalar) -> (usize, usize) {
        match self {
            Direction::Out => (scalar.size(), scalar.external_size()),
            Direction::In => (scalar.external_size(), scalar.size()),
        }
    }
}

/// Converts elements of one basic type.
///
/// # Panics
/// When the lengths are not those of the same number of elements.
pub(crate) fn convert(basic: Basic, direction: Direction, from: &[u8], to: &mut [u8]) {
    let (native, external) = (basic.size(), basic.external_size());
    let (before, after) = match direction {
        Direction::Out => (native, external),
        Direction::In => (external, native),
    };
    assert!(
        from.len().is_multiple_of(before) && from.len() / before * after == to.len(),
        "a conversion into another number of elements"
    );
    let scalars = basic.scalars();
    match scalars[0] {
        first if scalars.iter().any(|other| *other != first) => {}
        Scalar::B1 => return to.copy_from_slice(from),
        Scalar::B2 => return swap::<2>(from, to),
        Scalar::B4 => return swap::<4>(from, to),
        Scalar::B8 => return swap::<8>(from, to),
        Scalar::B16 => return swap::<16>(from, to),
        _ => {}
    }
    for (mut from, mut to) in from.chunks_exact(before).zip(to.chunks_exact_mut(after)) {
        for &scalar in scalars {
            let (a, b) = direction.sizes(scalar);
            let (from_now, from_rest) = from.split_at(a);
            let (to_now, to_rest) = to.split_at_mut(b);
            convert_one(scalar, direction, from_now, to_now);
            (from, to) = (from_rest, to_rest);
        }
    }
}

fn convert_one(scalar: Scalar, direction: Direction, from: &[u8], to: &mut [u8]) {
    match (scalar, direction) {
        (Scalar::Long | Scalar::UnsignedLong | Scalar::Wide, Direction::Out) => {
            reverse(&from[..to.len()], to);
        }
        (Scalar::Long | Scalar::UnsignedLong | Scalar::Wide, Direction::In) => {
            let negative = scalar == Scalar::Long && from[0] & 0x80 != 0;
            let (low, high) = to.split_at_mut(from.len());
            reverse(from, low);
            high.fill(if negative { 0xff } else { 0 });
        }
        #[cfg(target_arch = "x86_64")]
        (Scalar::LongDouble, Direction::Out) => x87::write(from, to),
        #[cfg(target_arch = "x86_64")]
        (Scalar::LongDouble, Direction::In) => x87::read(from, to),
        _ => reverse(from, to),
    }
}

/// Reverses the bytes of one number.
fn reverse(from: &[u8], to: &mut [u8]) {
    for (from, to) in from.iter().rev().zip(to) {
        *to = *from;
    }
}

/// Reverses the bytes of each number of `N` bytes.
fn swap<const N: usize>(from: &[u8], to: &mut [u8]) {
    for (from, to) in from.as_chunks::<N>().0.iter().zip(to.as_chunks_mut::<N>().0) {
        *to = *from;
        to.reverse();
    }
}

/// The 80-bit format of x87: sign and 15 bits of exponent as in binary128, then the leading 1 and 63 bits of fraction.
#[cfg(target_arch = "x86_64")]
mod x87 {
    /// Bits of fraction that binary128 has and x87 lacks.
    const LOST: u32 = 112 - 63;
    const LEADING: u64 = 1 << 63;
    const SPECIAL: u16 = 0x7fff;

    pub fn write(native: &[u8], out: &mut [u8]) {
        let mantissa = u64::from_le_bytes(native[..8].try_into().expect("8 of 16 bytes"));
        let top = u16::from_le_bytes([native[8], native[9]]);
        let (sign, exponent) = (top & 0x8000, top & SPECIAL);
        let fraction = u128::from(mantissa & !LEADING) << LOST;
        let (exponent, fraction) = match (exponent, mantissa & LEADING != 0) {
            (0, true) => (1, fraction), // a number that need not be subnormal
            (1..SPECIAL, false) => (SPECIAL, 1_u128 << 111), // no number: not a number
            (exponent, _) => (exponent, fraction),
        };
        let bits = u128::from(sign | exponent) << 112 | fraction;
        out.copy_from_slice(&bits.to_be_bytes());
    }

    pub fn read(external: &[u8], out: &mut [u8]) {
        let bits = u128::from_be_bytes(external.try_into().expect("16 bytes"));
        let (sign, magnitude) = ((bits >> 112) as u16 & 0x8000, bits & (u128::MAX >> 1));
        let (kept, lost) = (magnitude >> LOST, magnitude & ((1 << LOST) - 1));
        let half = 1_u128 << (LOST - 1);
        let special = (magnitude >> 112) as u16 == SPECIAL;
        let rounded = if special {
            // Infinity, or not a number: that must not become infinity when the set bits are lost.
            if magnitude << 16 == 0 { kept } else { kept | 1 << 62 }
        } else {
            // To the nearest, ties to even; a carry goes on into the exponent, as it should.
            kept + u128::from(lost > half || lost == half && kept & 1 == 1)
        };
        let exponent = (rounded >> 63) as u16;
        let leading = if exponent == 0 { 0 } else { LEADING };
        let mantissa = rounded as u64 & !LEADING | leading;
        out.fill(0);
        out[..8].copy_from_slice(&mantissa.to_le_bytes());
        out[8..10].copy_from_slice(&(sign | exponent).to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn both(basic: Basic, native: &[u8], external: &[u8]) {
        let mut out = vec![0; external.len()];
        convert(basic, Direction::Out, native, &mut out);
        assert_eq!(out, external, "{basic:?} out");
        let mut back = vec![0; native.len()];
        convert(basic, Direction::In, external, &mut back);
        assert_eq!(back, native, "{basic:?} in");
    }

    #[test]
    fn numbers_are_big_endian_and_have_the_standards_size() {
        both(Basic::Int, &0x0102_0304_i32.to_le_bytes(), &[1, 2, 3, 4]);
        both(Basic::Long, &(-2_i64).to_le_bytes(), &[0xff, 0xff, 0xff, 0xfe]);
        both(Basic::UnsignedLong, &0xffff_fffe_u64.to_le_bytes(), &[0xff, 0xff, 0xff, 0xfe]);
        both(Basic::Wchar, &0x20ac_u32.to_le_bytes(), &[0x20, 0xac]);
        both(Basic::Char, b"abc", b"abc");
        both(Basic::Double, &1.5_f64.to_le_bytes(), &1.5_f64.to_be_bytes());
        let native = [2.5_f32.to_le_bytes(), 7_i32.to_le_bytes()].concat();
        both(Basic::FloatInt, &native, &[2.5_f32.to_be_bytes(), 7_i32.to_be_bytes()].concat());
        let native = [(-3_i64).to_le_bytes().as_slice(), &7_i32.to_le_bytes()].concat();
        both(Basic::LongInt, &native, &[0xff, 0xff, 0xff, 0xfd, 0, 0, 0, 7]);
    }

    /// x87 numbers by their parts, and the same in binary128.
    #[cfg(target_arch = "x86_64")]
    #[test]
    fn long_doubles_are_binary128() {
        let cases: [(u16, u64, u128); 7] = [
            (0x3fff, 1 << 63, 0x3fff << 112),          // 1
            (0xc000, 0xc000 << 48, 0xc000_8000 << 96), // -3
            (0x3ffd, u64::MAX / 3 * 2 + 1, 0x3ffd_5555_5555_5555_5556 << 48), // 1/3
            (0, 0, 0),
            (0, 1, 1 << 49),                      // the smallest
            (0x7fff, 1 << 63, 0x7fff << 112),     // infinity
            (0x7fff, 3 << 62, 0x7fff_8000 << 96), // not a number
        ];
        for (top, mantissa, bits) in cases {
            let mut native = [0; 16];
            native[..8].copy_from_slice(&mantissa.to_le_bytes());
            native[8..10].copy_from_slice(&top.to_le_bytes());
            both(Basic::LongDouble, &native, &bits.to_be_bytes());
        }
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn binary128_rounds_to_even() {
        let read = |bits: u128| {
            let mut native = [0; 16];
            convert(Basic::LongDouble, Direction::In, &bits.to_be_bytes(), &mut native);
            let mantissa = u64::from_le_bytes(native[..8].try_into().expect("8 bytes"));
            (u16::from_le_bytes([native[8], native[9]]), mantissa)
        };
        let (one, ulp) = (0x3fff_u128 << 112, 1_u128 << 49);
        assert_eq!(read(one + ulp / 2), (0x3fff, 1 << 63));
        assert_eq!(read(one + ulp / 2 + 1), (0x3fff, 1 << 63 | 1));
        assert_eq!(read(one + ulp + ulp / 2), (0x3fff, 1 << 63 | 2));
        assert_eq!(read(one + (1 << 112) - 1), (0x4000, 1 << 63));
        assert_eq!(read((0x7fff << 112) - 1), (0x7fff, 1 << 63), "infinity");
        assert_eq!(read((0x7fff << 112) + 1), (0x7fff, 3 << 62), "not a number");
    }
}
