//! Element types and operations of reductions, and which go together (MPI 5.0 §6.9.2–6.9.5).
//!
//! Nothing here is unsafe: buffers are bytes of any alignment. Operands have an order: `apply` computes
//! `into = from ∘ into`, as a user's function does (§6.9.5: `inoutvec = invec ∘ inoutvec`).

mod kernels;

use crate::CollError;
use std::fmt;
use std::sync::Arc;

macro_rules! names {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $name {
            $($(#[$variant_doc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &[$name] = &[$($name::$variant),+];

            /// The name users know it by.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names! {
    /// Predefined types that reductions know. Sizes are those of this machine's C types.
    Type {
        /// `int8_t`.
        I8 = "MPI_INT8_T",
        /// `int16_t`.
        I16 = "MPI_INT16_T",
        /// `int32_t`.
        I32 = "MPI_INT32_T",
        /// `int64_t`.
        I64 = "MPI_INT64_T",
        /// `uint8_t`.
        U8 = "MPI_UINT8_T",
        /// `uint16_t`.
        U16 = "MPI_UINT16_T",
        /// `uint32_t`.
        U32 = "MPI_UINT32_T",
        /// `uint64_t`.
        U64 = "MPI_UINT64_T",
        /// `float`.
        F32 = "MPI_FLOAT",
        /// `double`.
        F64 = "MPI_DOUBLE",
        /// `_Bool`: a byte, 0 or not.
        Bool = "MPI_C_BOOL",
        /// A byte without meaning.
        Byte = "MPI_BYTE",
        /// `float _Complex`.
        C32 = "MPI_C_FLOAT_COMPLEX",
        /// `double _Complex`.
        C64 = "MPI_C_DOUBLE_COMPLEX",
        /// `struct { float; int; }`.
        FloatInt = "MPI_FLOAT_INT",
        /// `struct { double; int; }`, with its padding: 16 bytes.
        DoubleInt = "MPI_DOUBLE_INT",
        /// `struct { long; int; }`, with its padding: 16 bytes.
        LongInt = "MPI_LONG_INT",
        /// `struct { int; int; }`.
        TwoInt = "MPI_2INT",
        /// `struct { short; int; }`, with its padding: 8 bytes.
        ShortInt = "MPI_SHORT_INT",
    }
}

names! {
    /// Predefined operations.
    Op {
        /// Sum. Integers wrap around.
        Sum = "MPI_SUM",
        /// Product. Integers wrap around.
        Prod = "MPI_PROD",
        /// Minimum. Where a value is not a number, either operand may be the result.
        Min = "MPI_MIN",
        /// Maximum. As `Min`.
        Max = "MPI_MAX",
        /// Logical and.
        Land = "MPI_LAND",
        /// Logical or.
        Lor = "MPI_LOR",
        /// Logical exclusive or.
        Lxor = "MPI_LXOR",
        /// Bitwise and.
        Band = "MPI_BAND",
        /// Bitwise or.
        Bor = "MPI_BOR",
        /// Bitwise exclusive or.
        Bxor = "MPI_BXOR",
        /// Minimum, and the smallest index where it is.
        Minloc = "MPI_MINLOC",
        /// Maximum, and the smallest index where it is.
        Maxloc = "MPI_MAXLOC",
        /// The left operand (accumulation into windows only).
        Replace = "MPI_REPLACE",
        /// The right operand (accumulation into windows only).
        NoOp = "MPI_NO_OP",
    }
}

/// Groups of types with the same legal operations (§6.9.2).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Integer,
    Floating,
    Logical,
    Complex,
    Byte,
    Pair,
}

impl Type {
    /// Bytes from one element to the next.
    #[inline]
    #[must_use]
    pub const fn extent(self) -> usize {
        match self {
            Type::I8 | Type::U8 | Type::Bool | Type::Byte => 1,
            Type::I16 | Type::U16 => 2,
            Type::I32 | Type::U32 | Type::F32 => 4,
            Type::I64 | Type::U64 | Type::F64 | Type::C32 => 8,
            Type::FloatInt | Type::TwoInt | Type::ShortInt => 8,
            Type::C64 | Type::DoubleInt | Type::LongInt => 16,
        }
    }

    const fn class(self) -> Class {
        match self {
            Type::I8 | Type::I16 | Type::I32 | Type::I64 => Class::Integer,
            Type::U8 | Type::U16 | Type::U32 | Type::U64 => Class::Integer,
            Type::F32 | Type::F64 => Class::Floating,
            Type::Bool => Class::Logical,
            Type::C32 | Type::C64 => Class::Complex,
            Type::Byte => Class::Byte,
            Type::FloatInt | Type::DoubleInt | Type::LongInt => Class::Pair,
            Type::TwoInt | Type::ShortInt => Class::Pair,
        }
    }
}

impl Op {
    /// Whether reductions of this type may use it (the table of MPI 5.0 §6.9.2; pairs: §6.9.4).
    #[must_use]
    pub const fn is_legal(self, ty: Type) -> bool {
        match (self, ty.class()) {
            (Op::Max | Op::Min, class) => matches!(class, Class::Integer | Class::Floating),
            (Op::Sum | Op::Prod, class) => {
                matches!(class, Class::Integer | Class::Floating | Class::Complex)
            }
            (Op::Land | Op::Lor | Op::Lxor, class) => {
                matches!(class, Class::Integer | Class::Logical)
            }
            (Op::Band | Op::Bor | Op::Bxor, class) => matches!(class, Class::Integer | Class::Byte),
            (Op::Minloc | Op::Maxloc, class) => matches!(class, Class::Pair),
            (Op::Replace | Op::NoOp, _) => false,
        }
    }

    /// Whether accumulation into a window may use it (§12.3.4): as in reductions, and `MPI_REPLACE` and `MPI_NO_OP` of
    /// any type.
    #[must_use]
    pub const fn is_legal_in_windows(self, ty: Type) -> bool {
        matches!(self, Op::Replace | Op::NoOp) || self.is_legal(ty)
    }

    /// `into = from ∘ into`, element by element. Buffers may have any alignment.
    ///
    /// # Errors
    /// [`CollError::IllegalOp`] when the operation is not defined for the type, and nothing was done.
    ///
    /// # Panics
    /// When the buffers differ in length or do not hold whole elements.
    pub fn apply(self, ty: Type, from: &[u8], into: &mut [u8]) -> Result<(), CollError> {
        if !self.is_legal_in_windows(ty) {
            return Err(CollError::IllegalOp { op: self, ty });
        }
        assert_eq!(from.len(), into.len(), "operands of different length");
        assert!(from.len().is_multiple_of(ty.extent()), "operands of whole elements");
        kernels::apply(self, ty, from, into);
        Ok(())
    }
}

/// A function of the user's, `inout = input ∘ inout`: left operand, right operand and result. Both hold the same number
/// of whole elements and start at multiples of 64 bytes, or where the user's own buffers start.
pub type UserFunction = dyn Fn(&[u8], &mut [u8]) + Send + Sync;

#[derive(Clone)]
enum What {
    Predefined(Op, Type),
    User(Arc<UserFunction>),
}

/// How values are combined: an operation and the type of its elements. Cheap to clone.
#[derive(Clone)]
pub struct Reduction {
    what: What,
    extent: usize,
    commutative: bool,
}

impl Reduction {
    /// A predefined operation on a predefined type.
    ///
    /// # Errors
    /// [`CollError::IllegalOp`] when MPI does not define the operation for the type.
    pub const fn new(op: Op, ty: Type) -> Result<Self, CollError> {
        if !op.is_legal(ty) {
            return Err(CollError::IllegalOp { op, ty });
        }
        Ok(Reduction { what: What::Predefined(op, ty), extent: ty.extent(), commutative: true })
    }

    /// A user's function (`MPI_Op_create`, §6.9.5) on elements of `extent` bytes. It has to be associative; when it is not
    /// `commutative`, operands come in the order of ranks. It runs in the thread that polls, never at the same time as
    /// itself within one operation, and must not communicate.
    ///
    /// # Errors
    /// [`CollError::NoElements`] for elements of no bytes.
    pub fn user(
        extent: usize,
        commutative: bool,
        function: Arc<UserFunction>,
    ) -> Result<Self, CollError> {
        if extent == 0 {
            return Err(CollError::NoElements);
        }
        Ok(Reduction { what: What::User(function), extent, commutative })
    }

    /// Bytes of an element.
    #[inline]
    #[must_use]
    pub const fn extent(&self) -> usize {
        self.extent
    }

    /// Whether operands may change places.
    #[inline]
    #[must_use]
    pub const fn is_commutative(&self) -> bool {
        self.commutative
    }

    /// `into = from ∘ into`, for whoever has both operands (`MPI_Reduce_local`).
    ///
    /// # Panics
    /// When the buffers differ in length or do not hold whole elements.
    pub fn combine(&self, from: &[u8], into: &mut [u8]) {
        assert_eq!(from.len(), into.len(), "operands of different length");
        assert!(from.len().is_multiple_of(self.extent), "operands of whole elements");
        self.apply(from, into);
    }

    /// `into = from ∘ into`. Both hold the same number of whole elements: the schedule was checked.
    #[inline]
    pub(crate) fn apply(&self, from: &[u8], into: &mut [u8]) {
        match &self.what {
            What::Predefined(op, ty) => kernels::apply(*op, *ty, from, into),
            What::User(function) => function(from, into),
        }
    }
}

impl fmt::Debug for Reduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.what {
            What::Predefined(op, ty) => write!(f, "{op} of {ty}"),
            What::User(_) => write!(f, "user function on elements of {} bytes", self.extent),
        }
    }
}
