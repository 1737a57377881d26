//! Operations of reductions, and the elements that they work on (MPI standard 5.0, 6.9).

use crate::Result;
use crate::message::ElementMut;
use ironweave_coll::{Elements, Reduction, Type};
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// An element that predefined operations know: integers, floats, complex numbers, and values with their place. Sealed.
pub trait Numeric: ElementMut + sealed::Sealed {}

mod sealed {
    /// The standard's name of the type.
    pub trait Sealed {
        const TYPE: ironweave_coll::Type;
    }
}

macro_rules! numeric {
    ($($rust:ty = $name:ident),+ $(,)?) => {
        $(
            impl Numeric for $rust {}
            impl sealed::Sealed for $rust {
                const TYPE: Type = Type::$name;
            }
            const _: () = assert!(size_of::<$rust>() == Type::$name.extent());
        )+
    };
}

numeric! {
    i8 = I8, i16 = I16, i32 = I32, i64 = I64,
    u8 = U8, u16 = U16, u32 = U32, u64 = U64,
    f32 = F32, f64 = F64,
    Complex32 = C32, Complex64 = C64,
    LocatedF32 = FloatInt, LocatedI32 = TwoInt,
}

macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field_doc:meta])* $field:ident: $ty:ty,)+ })+) => {
        $(
            $(#[$doc])*
            #[derive(
                Clone, Copy, PartialEq, Default, Debug, FromBytes, IntoBytes, Immutable, KnownLayout,
            )]
            #[repr(C)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $ty,)+
            }
        )+
    };
}

structs! {
    /// A complex number of single precision, laid out as C's.
    Complex32 {
        /// The real part.
        re: f32,
        /// The imaginary part.
        im: f32,
    }
    /// A complex number of double precision, laid out as C's.
    Complex64 {
        /// The real part.
        re: f64,
        /// The imaginary part.
        im: f64,
    }
    /// A float and where it is, for [`Op::MINLOC`] and [`Op::MAXLOC`] (`MPI_FLOAT_INT`). The standard's pairs with padding
    /// cannot be sent safely, and are not here.
    LocatedF32 {
        /// The value.
        value: f32,
        /// Its place: of equal values the lowest place wins.
        index: i32,
    }
    /// An integer and where it is, for [`Op::MINLOC`] and [`Op::MAXLOC`] (`MPI_2INT`).
    LocatedI32 {
        /// The value.
        value: i32,
        /// Its place: of equal values the lowest place wins.
        index: i32,
    }
}

/// How a reduction combines elements of type `E`. Cheap to clone.
///
/// Predefined operations work on [`Numeric`] elements; which on which is the table of MPI 5.0, 6.9.2, and a wrong pair is told
/// by the call. Integers wrap around.
pub struct Op<E> {
    which: Which,
    _element: PhantomData<fn(E)>,
}

#[derive(Clone)]
enum Which {
    Known(ironweave_coll::Op, Type),
    User(Reduction),
}

macro_rules! known {
    ($($(#[$doc:meta])* $constant:ident = $name:ident;)+) => {
        impl<E: Numeric> Op<E> {
            $(
                $(#[$doc])*
                pub const $constant: Op<E> = Op {
                    which: Which::Known(ironweave_coll::Op::$name, E::TYPE),
                    _element: PhantomData,
                };
            )+
        }
    };
}

known! {
    /// Sum (`MPI_SUM`).
    SUM = Sum;
    /// Product (`MPI_PROD`).
    PROD = Prod;
    /// Smallest (`MPI_MIN`).
    MIN = Min;
    /// Largest (`MPI_MAX`).
    MAX = Max;
    /// Logical and (`MPI_LAND`): 1 where all are not 0.
    LAND = Land;
    /// Logical or (`MPI_LOR`).
    LOR = Lor;
    /// Logical exclusive or (`MPI_LXOR`).
    LXOR = Lxor;
    /// Bitwise and (`MPI_BAND`).
    BAND = Band;
    /// Bitwise or (`MPI_BOR`).
    BOR = Bor;
    /// Bitwise exclusive or (`MPI_BXOR`).
    BXOR = Bxor;
    /// Smallest value and where it is (`MPI_MINLOC`), for [`LocatedF32`] and [`LocatedI32`].
    MINLOC = Minloc;
    /// Largest value and where it is (`MPI_MAXLOC`), for [`LocatedF32`] and [`LocatedI32`].
    MAXLOC = Maxloc;
}

impl<E: ElementMut + KnownLayout> Op<E> {
    /// A function of one's own (`MPI_Op_create`): `function(left, right)` puts `left ∘ right` into `right`, element by element. It
    /// has to be associative; unless it is `commutative`, operands come in the order of ranks.
    ///
    /// ```
    /// # let world = ironweave::World::init()?;
    /// # let comm = world.comm();
    /// use ironweave::Op;
    /// // Functions x → a·x + b after one another: not commutative.
    /// let compose = Op::user(false, |first: &[[f64; 2]], then: &mut [[f64; 2]]| {
    ///     for ([a, b], [c, d]) in first.iter().zip(then) {
    ///         (*c, *d) = (*c * a, *c * b + *d);
    ///     }
    /// });
    /// let mut all = [[0.0; 2]];
    /// comm.allreduce(&[[2.0, 1.0]], &mut all, compose)?;
    /// # Ok::<(), ironweave::Error>(())
    /// ```
    pub fn user(
        commutative: bool,
        function: impl Fn(&[E], &mut [E]) + Send + Sync + 'static,
    ) -> Self {
        let bytes = move |left: &[u8], right: &mut [u8]| {
            let left = <[E]>::ref_from_bytes(left).expect("operands are whole, aligned elements");
            let right = <[E]>::mut_from_bytes(right).expect("operands are whole, aligned elements");
            function(left, right);
        };
        const { assert!(size_of::<E>() > 0, "elements have a size") };
        let reduction = Reduction::user(size_of::<E>(), commutative, Arc::new(bytes));
        Op { which: Which::User(reduction.expect("elements have a size")), _element: PhantomData }
    }
}

impl<E> Op<E> {
    /// The operation as the schedules have it, and what it works on.
    pub(crate) fn on(&self, count: usize) -> Result<(Reduction, Elements)> {
        let reduction = match &self.which {
            Which::Known(op, ty) => Reduction::new(*op, *ty)?,
            Which::User(reduction) => reduction.clone(),
        };
        let commutative = reduction.is_commutative();
        Ok((reduction, Elements { count, extent: size_of::<E>(), commutative }))
    }
}

impl<E> Clone for Op<E> {
    fn clone(&self) -> Self {
        Op { which: self.which.clone(), _element: PhantomData }
    }
}

impl<E> fmt::Debug for Op<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.which {
            Which::Known(op, ty) => write!(f, "{op} on {ty}"),
            Which::User(_) => write!(f, "user function"),
        }
    }
}
