//! The predefined datatypes of the MPI ABI and what is known of each: one table.
//!
//! Values are the ABI's handles. Sizes and alignments are those of the x86-64 and AArch64 System V ABIs and of Fortran
//! compilers without size options; external32 sizes are those of MPI 5.0, section 15.5.2.

/// One number inside a basic type, as memory and external32 hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scalar {
    /// One byte, taken over as it is.
    B1,
    /// Two bytes, big-endian in external32; likewise the next three.
    B2,
    /// Four bytes.
    B4,
    /// Eight bytes.
    B8,
    /// Sixteen bytes.
    B16,
    /// C `long`: 8 bytes here, 4 in external32.
    Long,
    /// C `unsigned long`: 8 bytes here, 4 in external32.
    UnsignedLong,
    /// C `wchar_t`: 4 bytes here, 2 in external32.
    Wide,
    /// C `long double`: the x87 format in 16 bytes here (on x86-64), IEEE binary128 in external32.
    LongDouble,
}

impl Scalar {
    /// Bytes in memory; also its alignment.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Scalar::B1 => 1,
            Scalar::B2 => 2,
            Scalar::B4 | Scalar::Wide => 4,
            Scalar::B8 | Scalar::Long | Scalar::UnsignedLong => 8,
            Scalar::B16 | Scalar::LongDouble => 16,
        }
    }

    /// Bytes in external32.
    #[must_use]
    pub const fn external_size(self) -> usize {
        match self {
            Scalar::Long | Scalar::UnsignedLong => 4,
            Scalar::Wide => 2,
            other => other.size(),
        }
    }
}

/// What values of a basic type are: decides which reductions take them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Signed integers of C and integers of Fortran.
    Signed,
    /// Unsigned integers.
    Unsigned,
    /// Floating point.
    Float,
    /// Complex floating point.
    Complex,
    /// Truth values.
    Logical,
    /// Characters: no reductions.
    Character,
    /// Raw bytes.
    Byte,
    /// `MPI_AINT`, `MPI_COUNT` and `MPI_OFFSET`: integers for C and Fortran.
    Address,
    /// `MPI_PACKED`.
    Packed,
    /// A value and an index.
    Pair,
}

macro_rules! basics {
    ($($name:ident = $abi:literal, $text:literal, $kind:ident, [$($scalar:ident),+];)*) => {
        /// A predefined datatype. Its value is its handle in the ABI.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "the names are the standard's")]
        pub enum Basic { $($name = $abi),* }

        impl Basic {
            /// All of them.
            pub const ALL: &[Basic] = &[$(Basic::$name),*];

            /// The one with this handle.
            #[must_use]
            pub const fn from_abi(handle: u16) -> Option<Basic> {
                match handle { $($abi => Some(Basic::$name),)* _ => None }
            }

            /// The MPI name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Basic::$name => $text),* }
            }

            /// What its values are.
            #[must_use]
            pub const fn kind(self) -> Kind {
                match self { $(Basic::$name => Kind::$kind),* }
            }

            /// The numbers it is made of, in order.
            #[must_use]
            pub const fn scalars(self) -> &'static [Scalar] {
                match self { $(Basic::$name => &[$(Scalar::$scalar),+]),* }
            }
        }
    };
}

basics! {
    Aint = 0x201, "MPI_AINT", Address, [B8];
    Count = 0x202, "MPI_COUNT", Address, [B8];
    Offset = 0x203, "MPI_OFFSET", Address, [B8];
    Packed = 0x207, "MPI_PACKED", Packed, [B1];
    Short = 0x208, "MPI_SHORT", Signed, [B2];
    Int = 0x209, "MPI_INT", Signed, [B4];
    Long = 0x20a, "MPI_LONG", Signed, [Long];
    LongLong = 0x20b, "MPI_LONG_LONG_INT", Signed, [B8];
    UnsignedShort = 0x20c, "MPI_UNSIGNED_SHORT", Unsigned, [B2];
    Unsigned = 0x20d, "MPI_UNSIGNED", Unsigned, [B4];
    UnsignedLong = 0x20e, "MPI_UNSIGNED_LONG", Unsigned, [UnsignedLong];
    UnsignedLongLong = 0x20f, "MPI_UNSIGNED_LONG_LONG", Unsigned, [B8];
    Float = 0x210, "MPI_FLOAT", Float, [B4];
    CFloatComplex = 0x212, "MPI_C_COMPLEX", Complex, [B4, B4];
    CxxFloatComplex = 0x213, "MPI_CXX_FLOAT_COMPLEX", Complex, [B4, B4];
    Double = 0x214, "MPI_DOUBLE", Float, [B8];
    CDoubleComplex = 0x216, "MPI_C_DOUBLE_COMPLEX", Complex, [B8, B8];
    CxxDoubleComplex = 0x217, "MPI_CXX_DOUBLE_COMPLEX", Complex, [B8, B8];
    Logical = 0x218, "MPI_LOGICAL", Logical, [B4];
    Integer = 0x219, "MPI_INTEGER", Signed, [B4];
    Real = 0x21a, "MPI_REAL", Float, [B4];
    Complex = 0x21b, "MPI_COMPLEX", Complex, [B4, B4];
    DoublePrecision = 0x21c, "MPI_DOUBLE_PRECISION", Float, [B8];
    DoubleComplex = 0x21d, "MPI_DOUBLE_COMPLEX", Complex, [B8, B8];
    Character = 0x21e, "MPI_CHARACTER", Character, [B1];
    LongDouble = 0x220, "MPI_LONG_DOUBLE", Float, [LongDouble];
    CLongDoubleComplex = 0x224, "MPI_C_LONG_DOUBLE_COMPLEX", Complex, [LongDouble, LongDouble];
    CxxLongDoubleComplex = 0x225, "MPI_CXX_LONG_DOUBLE_COMPLEX", Complex, [LongDouble, LongDouble];
    FloatInt = 0x228, "MPI_FLOAT_INT", Pair, [B4, B4];
    DoubleInt = 0x229, "MPI_DOUBLE_INT", Pair, [B8, B4];
    LongInt = 0x22a, "MPI_LONG_INT", Pair, [Long, B4];
    TwoInt = 0x22b, "MPI_2INT", Pair, [B4, B4];
    ShortInt = 0x22c, "MPI_SHORT_INT", Pair, [B2, B4];
    LongDoubleInt = 0x22d, "MPI_LONG_DOUBLE_INT", Pair, [LongDouble, B4];
    TwoReal = 0x230, "MPI_2REAL", Pair, [B4, B4];
    TwoDoublePrecision = 0x231, "MPI_2DOUBLE_PRECISION", Pair, [B8, B8];
    TwoInteger = 0x232, "MPI_2INTEGER", Pair, [B4, B4];
    CBool = 0x238, "MPI_C_BOOL", Logical, [B1];
    CxxBool = 0x239, "MPI_CXX_BOOL", Logical, [B1];
    Wchar = 0x23c, "MPI_WCHAR", Character, [Wide];
    Int8 = 0x240, "MPI_INT8_T", Signed, [B1];
    Uint8 = 0x241, "MPI_UINT8_T", Unsigned, [B1];
    Char = 0x243, "MPI_CHAR", Character, [B1];
    SignedChar = 0x244, "MPI_SIGNED_CHAR", Signed, [B1];
    UnsignedChar = 0x245, "MPI_UNSIGNED_CHAR", Unsigned, [B1];
    Byte = 0x247, "MPI_BYTE", Byte, [B1];
    Int16 = 0x248, "MPI_INT16_T", Signed, [B2];
    Uint16 = 0x249, "MPI_UINT16_T", Unsigned, [B2];
    Int32 = 0x250, "MPI_INT32_T", Signed, [B4];
    Uint32 = 0x251, "MPI_UINT32_T", Unsigned, [B4];
    Int64 = 0x258, "MPI_INT64_T", Signed, [B8];
    Uint64 = 0x259, "MPI_UINT64_T", Unsigned, [B8];
    Logical1 = 0x2c0, "MPI_LOGICAL1", Logical, [B1];
    Integer1 = 0x2c1, "MPI_INTEGER1", Signed, [B1];
    Logical2 = 0x2c8, "MPI_LOGICAL2", Logical, [B2];
    Integer2 = 0x2c9, "MPI_INTEGER2", Signed, [B2];
    Real2 = 0x2ca, "MPI_REAL2", Float, [B2];
    Logical4 = 0x2d0, "MPI_LOGICAL4", Logical, [B4];
    Integer4 = 0x2d1, "MPI_INTEGER4", Signed, [B4];
    Real4 = 0x2d2, "MPI_REAL4", Float, [B4];
    Complex4 = 0x2d3, "MPI_COMPLEX4", Complex, [B2, B2];
    Logical8 = 0x2d8, "MPI_LOGICAL8", Logical, [B8];
    Integer8 = 0x2d9, "MPI_INTEGER8", Signed, [B8];
    Real8 = 0x2da, "MPI_REAL8", Float, [B8];
    Complex8 = 0x2db, "MPI_COMPLEX8", Complex, [B4, B4];
    Logical16 = 0x2e0, "MPI_LOGICAL16", Logical, [B16];
    Integer16 = 0x2e1, "MPI_INTEGER16", Signed, [B16];
    Real16 = 0x2e2, "MPI_REAL16", Float, [B16];
    Complex16 = 0x2e3, "MPI_COMPLEX16", Complex, [B8, B8];
    Complex32 = 0x2eb, "MPI_COMPLEX32", Complex, [B16, B16];
}

impl Basic {
    /// The handle in the ABI.
    #[must_use]
    pub const fn abi(self) -> u16 {
        self as u16
    }

    /// Bytes of data, without padding.
    #[must_use]
    pub const fn size(self) -> usize {
        let (scalars, mut size, mut i) = (self.scalars(), 0, 0);
        while i < scalars.len() {
            size += scalars[i].size();
            i += 1;
        }
        size
    }

    /// Alignment in bytes.
    #[must_use]
    pub const fn align(self) -> usize {
        let (scalars, mut align, mut i) = (self.scalars(), 1, 0);
        while i < scalars.len() {
            if scalars[i].size() > align {
                align = scalars[i].size();
            }
            i += 1;
        }
        align
    }

    /// Distance between two in an array: the size with padding, as C lays out such a struct.
    #[must_use]
    pub const fn extent(self) -> usize {
        let (scalars, mut end, mut i) = (self.scalars(), 0_usize, 0);
        while i < scalars.len() {
            end = end.next_multiple_of(scalars[i].size()) + scalars[i].size();
            i += 1;
        }
        end.next_multiple_of(self.align())
    }

    /// Where the second of a pair is, from the start.
    #[must_use]
    pub const fn second_offset(self) -> usize {
        let scalars = self.scalars();
        match scalars.len() {
            2 => scalars[0].size().next_multiple_of(scalars[1].size()),
            _ => 0,
        }
    }

    /// Bytes in external32.
    #[must_use]
    pub const fn external_size(self) -> usize {
        let (scalars, mut size, mut i) = (self.scalars(), 0, 0);
        while i < scalars.len() {
            size += scalars[i].external_size();
            i += 1;
        }
        size
    }

    /// The two types a pair type consists of.
    #[must_use]
    pub const fn pair(self) -> Option<(Basic, Basic)> {
        Some(match self {
            Basic::FloatInt => (Basic::Float, Basic::Int),
            Basic::DoubleInt => (Basic::Double, Basic::Int),
            Basic::LongInt => (Basic::Long, Basic::Int),
            Basic::TwoInt => (Basic::Int, Basic::Int),
            Basic::ShortInt => (Basic::Short, Basic::Int),
            Basic::LongDoubleInt => (Basic::LongDouble, Basic::Int),
            Basic::TwoReal => (Basic::Real, Basic::Real),
            Basic::TwoDoublePrecision => (Basic::DoublePrecision, Basic::DoublePrecision),
            Basic::TwoInteger => (Basic::Integer, Basic::Integer),
            _ => return None,
        })
    }

    /// Basic elements in one, as `MPI_Get_elements` counts: a pair has two.
    #[must_use]
    pub const fn elements(self) -> i64 {
        if self.pair().is_some() { 2 } else { 1 }
    }

    /// The pair type for `MPI_MAXLOC` and `MPI_MINLOC` of this value and index, if the standard names one.
    #[must_use]
    pub fn pair_of(value: Basic, index: Basic) -> Option<Basic> {
        Basic::ALL.iter().copied().find(|basic| basic.pair() == Some((value, index)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn facts_are_those_of_c() {
        let facts =
            |basic: Basic| (basic.size(), basic.extent(), basic.align(), basic.external_size());
        assert_eq!(facts(Basic::Int), (4, 4, 4, 4));
        assert_eq!(facts(Basic::Long), (8, 8, 8, 4));
        assert_eq!(facts(Basic::DoubleInt), (12, 16, 8, 12));
        assert_eq!(facts(Basic::ShortInt), (6, 8, 4, 6));
        assert_eq!(facts(Basic::LongInt), (12, 16, 8, 8));
        assert_eq!(facts(Basic::LongDoubleInt), (20, 32, 16, 20));
        assert_eq!(facts(Basic::CLongDoubleComplex), (32, 32, 16, 32));
        assert_eq!(facts(Basic::Wchar), (4, 4, 4, 2));
        assert_eq!(facts(Basic::Complex4), (4, 4, 2, 4));
        assert_eq!(Basic::ShortInt.second_offset(), 4);
    }

    #[test]
    fn handles_name_their_types() {
        for &basic in Basic::ALL {
            assert_eq!(Basic::from_abi(basic.abi()), Some(basic));
            // Bits 3 to 5 of a fixed-size handle are the logarithm of its size.
            if matches!(basic.abi() >> 6 & 3, 1 | 3) {
                assert_eq!(1 << (basic.abi() >> 3 & 7), basic.size(), "{basic:?}");
            }
        }
        assert_eq!(Basic::from_abi(0x200), None);
        assert_eq!(Basic::pair_of(Basic::Double, Basic::Int), Some(Basic::DoubleInt));
        assert_eq!(Basic::pair_of(Basic::Int, Basic::Double), None);
    }
}
