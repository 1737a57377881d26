//! The MPI standard ABI (MPI 5.0, chapter 20) over Ironweave: `libmpi_abi.so.1`. Programs in C, and whatever stands on C, run
//! unmodified and survive failures.
//!
//! Each function is defined once with [`mpi!`], which exports it under its `MPI_` and its `PMPI_` name, so that tools interpose
//! (chapter 15), catches panics, and hands errors to the error handler of the object that the call was made on. Functions of
//! the standard that have no definition here are exported too: they raise `MPI_ERR_UNSUPPORTED_OPERATION`.
//!
//! Handles are never dereferenced ([`handle`]); pointers to buffers and results are the caller's promise, as in C.
#![allow(unsafe_code)] // the boundary to C: every function here takes the caller's pointers
#![allow(clippy::missing_safety_doc)] // the standard says what each pointer has to be

pub mod abi;
mod attached;
mod attribute;
mod codes;
mod collective;
pub mod comm;
pub mod completion;
mod construct;
pub mod count;
pub mod data;
pub mod datatype;
pub mod environment;
pub mod errhandler;
pub mod error;
mod fortran;
mod generalized;
mod group;
pub mod handle;
mod info;
mod memory;
mod op;
pub mod p2p;
mod partitioned;
pub mod prelude;
pub mod probe;
pub mod process;
mod removed;
pub mod request;
mod session;
pub mod status;
mod stubs;
mod tool;
mod topology;
mod ulfm;

/// Defines functions of the ABI.
///
/// ```text
/// mpi! {
///     fn MPI_Comm_rank(comm: MPI_Comm, rank: *mut c_int) on comm { … }
///     fn MPI_Send / MPI_Send_c(buf: *const c_void, count: Count, …) on comm { … }
/// }
/// ```
///
/// The body is a block of type `Result<(), Fail>`. `on` names the argument whose error handler is told of errors, or
/// `none` for that of `MPI_COMM_SELF`; `ever` is as `none`, and the call may be made before initialization and after finalization.
/// With two names, `Count` is `c_int` in the first and `MPI_Count` in the second, `Displ` (displacements of collectives) `c_int` and
/// `MPI_Aint`, `Disp` (displacements of datatypes) `MPI_Aint` and `MPI_Count`; [`count`] reads and writes them alike.
///
/// `first { … }` before the body is a short cut, part of the exported functions themselves: `true`, or `Some` result, when it has done
/// all that the call is to do, `false` or `None` when it has done nothing.
#[macro_export]
macro_rules! mpi {
    () => {};
    ($(#[$doc:meta])* fn $name:ident ($($arg:ident: $ty:ty),* $(,)?) on $on:ident $(first $cut:block)? $body:block $($rest:tt)*) => {
        $crate::mpi! { @one [$name] ($($arg: $ty),*) $on [$($cut)?] $body {} }
        $crate::mpi! { $($rest)* }
    };
    ($(#[$doc:meta])* fn $name:ident / $large:ident ($($arg:ident: $ty:ty),* $(,)?) on $on:ident $(first $cut:block)? $body:block $($rest:tt)*) => {
        $crate::mpi! { @one [$name] ($($arg: $ty),*) $on [$($cut)?] $body {
            #[allow(unused)] type Count = c_int;
            #[allow(unused)] type Displ = c_int;
            #[allow(unused)] type Disp = MPI_Aint;
        } }
        $crate::mpi! { @one [$large] ($($arg: $ty),*) $on [$($cut)?] $body {
            #[allow(unused)] type Count = MPI_Count;
            #[allow(unused)] type Displ = MPI_Aint;
            #[allow(unused)] type Disp = MPI_Count;
        } }
        $crate::mpi! { $($rest)* }
    };
    (@general [$cut:block]) => { farther };
    (@general []) => { call };
    (@one [$name:ident] ($($arg:ident: $ty:ty),*) $on:ident [$($cut:block)?] $body:block { $($types:item)* }) => {
        const _: () = {
            $($types)*

            // One body behind both names.
            #[allow(clippy::too_many_arguments)]
            unsafe fn call($($arg: $ty),*) -> c_int {
                $crate::error::boundary(stringify!($name), $crate::error::Target::from($on), move || {
                    $($crate::error::needed($crate::error::Target::from($on), stringify!($arg), &$arg)?;)*
                    $body
                })
            }

            // Where the short cut does not lead: out of its way, so that it has the registers.
            #[cold]
            #[inline(never)]
            #[allow(unused, clippy::too_many_arguments)]
            unsafe fn farther($($arg: $ty),*) -> c_int {
                // SAFETY: the caller's promise.
                unsafe { call($($arg),*) }
            }

            #[allow(clippy::too_many_arguments)]
            #[unsafe(export_name = stringify!($name))]
            unsafe extern "C" fn plain($($arg: $ty),*) -> c_int {
                $(if let Some(code) =
                    $crate::error::first(stringify!($name), $crate::error::Target::from($on), || $cut)
                {
                    return code;
                })?
                // SAFETY: the caller's promise.
                unsafe { $crate::mpi!(@general [$($cut)?])($($arg),*) }
            }

            #[allow(clippy::too_many_arguments)]
            #[unsafe(export_name = concat!("P", stringify!($name)))]
            unsafe extern "C" fn profiled($($arg: $ty),*) -> c_int {
                $(if let Some(code) =
                    $crate::error::first(stringify!($name), $crate::error::Target::from($on), || $cut)
                {
                    return code;
                })?
                // SAFETY: the caller's promise.
                unsafe { $crate::mpi!(@general [$($cut)?])($($arg),*) }
            }
        };
    };
}
