//! Reduction operations: predefined ones on predefined types, and those of users (MPI 5.0, §6.9).

use crate::data;
use crate::datatype;
use crate::handle::Table;
use crate::prelude::*;
use ironweave_coll::{Elements, Op, Reduction, Type};
use std::sync::{Arc, LazyLock};

mod extra;

/// A function of the user's.
#[derive(Clone, Copy, Debug)]
enum Function {
    Int(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut MPI_Datatype)),
    Large(unsafe extern "C" fn(*mut c_void, *mut c_void, *mut MPI_Count, *mut MPI_Datatype)),
}

/// An operation of the user's.
#[derive(Clone, Copy, Debug)]
struct User {
    function: Function,
    commutative: bool,
}

impl User {
    /// `inout = input ∘ inout`, for so many elements.
    ///
    /// # Safety
    /// Both hold as many.
    unsafe fn call(&self, input: *mut u8, inout: *mut u8, count: usize, datatype: MPI_Datatype) {
        let mut datatype = datatype;
        let (input, inout) = (input.cast(), inout.cast());
        // SAFETY: the user's function, with what the standard says it gets.
        unsafe {
            match self.function {
                Function::Int(function) => {
                    let mut count = count as c_int;
                    function(input, inout, &raw mut count, &raw mut datatype);
                }
                Function::Large(function) => {
                    let mut count = count as MPI_Count;
                    function(input, inout, &raw mut count, &raw mut datatype);
                }
            }
        }
    }
}

static OPS: Table<User> = Table::new();

/// The handle of a Fortran handle.
pub fn of_fortran(low: u32) -> Option<usize> {
    OPS.of_fortran(low)
}

/// The operation of a predefined handle.
pub fn predefined(op: MPI_Op) -> Option<Op> {
    Some(match op {
        MPI_SUM => Op::Sum,
        MPI_MIN => Op::Min,
        MPI_MAX => Op::Max,
        MPI_PROD => Op::Prod,
        MPI_BAND => Op::Band,
        MPI_BOR => Op::Bor,
        MPI_BXOR => Op::Bxor,
        MPI_LAND => Op::Land,
        MPI_LOR => Op::Lor,
        MPI_LXOR => Op::Lxor,
        MPI_MINLOC => Op::Minloc,
        MPI_MAXLOC => Op::Maxloc,
        MPI_REPLACE => Op::Replace,
        MPI_NO_OP => Op::NoOp,
        _ => return None,
    })
}

/// The predefined datatypes that reductions know, but for those in [`extra`].
fn known(datatype: MPI_Datatype) -> Option<Type> {
    Some(match datatype {
        // MPI_CHAR is for text, and has no arithmetic in the standard; programs add it all the same, and others let them.
        MPI_INT8_T | MPI_SIGNED_CHAR | MPI_CHAR | MPI_INTEGER1 => Type::I8,
        MPI_SHORT | MPI_INT16_T | MPI_INTEGER2 => Type::I16,
        MPI_INT | MPI_INT32_T | MPI_INTEGER | MPI_INTEGER4 => Type::I32,
        MPI_LONG | MPI_LONG_LONG | MPI_INT64_T | MPI_INTEGER8 => Type::I64,
        MPI_AINT | MPI_COUNT | MPI_OFFSET => Type::I64,
        MPI_UINT8_T | MPI_UNSIGNED_CHAR => Type::U8,
        MPI_UNSIGNED_SHORT | MPI_UINT16_T => Type::U16,
        MPI_UNSIGNED | MPI_UINT32_T => Type::U32,
        MPI_UNSIGNED_LONG | MPI_UNSIGNED_LONG_LONG | MPI_UINT64_T => Type::U64,
        MPI_FLOAT | MPI_REAL | MPI_REAL4 => Type::F32,
        MPI_DOUBLE | MPI_DOUBLE_PRECISION | MPI_REAL8 => Type::F64,
        MPI_C_BOOL | MPI_CXX_BOOL => Type::Bool,
        MPI_BYTE => Type::Byte,
        MPI_C_FLOAT_COMPLEX | MPI_CXX_FLOAT_COMPLEX | MPI_COMPLEX | MPI_COMPLEX8 => Type::C32,
        MPI_C_DOUBLE_COMPLEX | MPI_CXX_DOUBLE_COMPLEX | MPI_DOUBLE_COMPLEX | MPI_COMPLEX16 => {
            Type::C64
        }
        MPI_FLOAT_INT => Type::FloatInt,
        MPI_DOUBLE_INT => Type::DoubleInt,
        MPI_LONG_INT => Type::LongInt,
        MPI_2INT | MPI_2INTEGER => Type::TwoInt,
        MPI_SHORT_INT => Type::ShortInt,
        _ => return None,
    })
}

/// Fortran's logical types, as integers of their size.
fn logical(datatype: MPI_Datatype) -> Option<Type> {
    Some(match datatype {
        MPI_LOGICAL1 => Type::I8,
        MPI_LOGICAL2 => Type::I16,
        MPI_LOGICAL | MPI_LOGICAL4 => Type::I32,
        MPI_LOGICAL8 => Type::I64,
        _ => return None,
    })
}

/// How values are combined.
pub struct Combination {
    /// For schedules.
    pub reduction: Reduction,
    /// The buffers hold elements of so many bytes, gaps included: nothing is packed.
    pub whole: bool,
}

impl Combination {
    /// So many elements of it.
    ///
    /// # Errors
    /// `MPI_ERR_COUNT`.
    pub fn on(&self, count: i64) -> Result<Elements> {
        let count = crate::count::count("count", count)?;
        let (extent, commutative) = (self.reduction.extent(), self.reduction.is_commutative());
        Ok(Elements { count, extent, commutative })
    }
}

/// The combination of an operation and a datatype.
///
/// # Errors
/// `MPI_ERR_OP` when it is no operation, or not defined for the datatype; `MPI_ERR_TYPE`.
pub fn combination(op: MPI_Op, datatype: MPI_Datatype) -> Result<Combination> {
    let Some(which) = predefined(op) else { return user(op, datatype) };
    if let Some(ty) = known(datatype) {
        let reduction = Reduction::new(which, ty).map_err(|_| undefined(op, datatype))?;
        return Ok(Combination { reduction, whole: true });
    }
    // Chosen by precision and range: as the one with a name.
    let alike = datatype::get(datatype)?.datatype.counts_as();
    let alike = alike.map_or(datatype, |basic| MPI_Datatype(usize::from(basic.abi())));
    if alike != datatype {
        return combination(op, alike);
    }
    if let Some(ty) = logical(datatype)
        && matches!(which, Op::Land | Op::Lor | Op::Lxor)
    {
        let reduction = Reduction::new(which, ty).map_err(|_| undefined(op, datatype))?;
        return Ok(Combination { reduction, whole: true });
    }
    data::element(datatype)?;
    match extra::reduction(which, datatype) {
        Some(reduction) => Ok(Combination { reduction, whole: true }),
        None => Err(undefined(op, datatype)),
    }
}

/// Operations and types by the low bytes of their handles.
const HANDLES: (usize, usize) = (MPI_OP_NULL.0, MPI_DATATYPE_NULL.0);

/// The predefined operations on the types that [`known`] knows, by handle.
static COMMON: LazyLock<Box<[Option<Reduction>]>> = LazyLock::new(|| {
    let all = (0..OPS_MAX).flat_map(|op| (0..TYPES_MAX).map(move |ty| (op, ty)));
    let combined = all.map(|(op, ty)| {
        let which = predefined(MPI_Op(HANDLES.0 + op))?;
        Reduction::new(which, known(MPI_Datatype(HANDLES.1 + ty))?).ok()
    });
    combined.collect()
});

/// More than there are predefined operations.
const OPS_MAX: usize = 32;
/// More than there are predefined types.
const TYPES_MAX: usize = 256;

/// The combination of a predefined operation and a predefined type without gaps, for short cuts.
#[inline(always)]
#[must_use]
pub fn common(op: MPI_Op, datatype: MPI_Datatype) -> Option<&'static Reduction> {
    let (op, ty) = (op.0.wrapping_sub(HANDLES.0), datatype.0.wrapping_sub(HANDLES.1));
    if op >= OPS_MAX || ty >= TYPES_MAX {
        return None;
    }
    COMMON.get(op * TYPES_MAX + ty)?.as_ref()
}

#[cold]
fn undefined(op: MPI_Op, datatype: MPI_Datatype) -> Fail {
    let text = format!("operation {:#x} is not defined for datatype {:#x}", op.0, datatype.0);
    fail(MPI_ERR_OP, text)
}

#[cold]
fn unknown(op: MPI_Op) -> Fail {
    match op {
        MPI_OP_NULL => fail(MPI_ERR_OP, "the operation is MPI_OP_NULL"),
        MPI_Op(word) => fail(MPI_ERR_OP, format!("{word:#x} is no operation")),
    }
}

/// A user's function: on elements as they are where they have no gaps, else on copies with their gaps.
fn user(op: MPI_Op, datatype: MPI_Datatype) -> Result<Combination> {
    let user = *OPS.get(op.0).ok_or_else(|| unknown(op))?;
    let element = data::element(datatype)?;
    if element.size == 0 {
        let text = "a reduction of elements without data";
        return Err(fail(MPI_ERR_TYPE, text));
    }
    let plain = data::piece(2, datatype)? == Some((0, 2 * element.size))
        && element.extent == element.size as isize;
    let size = element.size;
    let function: Arc<ironweave_coll::UserFunction> = if plain {
        Arc::new(move |from: &[u8], into: &mut [u8]| {
            let count = from.len() / size;
            let (from, into) = (from.as_ptr().cast_mut(), into.as_mut_ptr());
            // SAFETY: as many elements; the standard forbids the function to write its first operand.
            unsafe { user.call(from, into, count, datatype) };
        })
    } else {
        Arc::new(move |from: &[u8], into: &mut [u8]| {
            let count = from.len() / size;
            if let Err(error) = spread(user, from, into, count, datatype) {
                // The datatype was looked up when the call began: this is a datatype freed under a running call.
                tracing::error!(%error, "a reduction was left out");
            }
        })
    };
    let reduction = Reduction::user(size, user.commutative, function)
        .map_err(|error| fail(MPI_ERR_OP, error.to_string()))?;
    Ok(Combination { reduction, whole: false })
}

/// Calls a user's function on copies of packed elements that have their gaps.
fn spread(
    user: User,
    from: &[u8],
    into: &mut [u8],
    count: usize,
    datatype: MPI_Datatype,
) -> Result<()> {
    let (offset, len) = data::span(count, datatype)?;
    let mut copies = [vec![0u128; len.div_ceil(16)], vec![0u128; len.div_ceil(16)]];
    let [input, inout] = copies
        .each_mut()
        .map(|copy| copy.as_mut_ptr().cast::<u8>().wrapping_offset(offset.wrapping_neg()));
    // SAFETY: both copies span the elements; nobody else has them.
    unsafe {
        data::unpack(from, input.cast(), count, datatype)?;
        data::unpack(into, inout.cast(), count, datatype)?;
        user.call(input, inout, count, datatype);
        let mut packed = Vec::with_capacity(into.len());
        data::pack(inout.cast(), count, datatype, &mut packed)?;
        into.copy_from_slice(&packed);
    }
    Ok(())
}

fn create(function: Function, commute: c_int, op: *mut MPI_Op) -> Result<()> {
    let made = OPS.insert(User { function, commutative: commute != 0 });
    // SAFETY: the caller's result.
    unsafe { op.write(MPI_Op(made)) };
    Ok(())
}

mpi! {
    fn MPI_Op_create(user_fn: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut c_int, *mut MPI_Datatype), commute: c_int, op: *mut MPI_Op) on none {
        create(Function::Int(user_fn), commute, op)
    }

    fn MPI_Op_create_c(user_fn: unsafe extern "C" fn(*mut c_void, *mut c_void, *mut MPI_Count, *mut MPI_Datatype), commute: c_int, op: *mut MPI_Op) on none {
        create(Function::Large(user_fn), commute, op)
    }

    fn MPI_Op_free(op: *mut MPI_Op) on none {
        // SAFETY: the caller's handle.
        let handle = unsafe { *op };
        if predefined(handle).is_some() {
            return Err(fail(MPI_ERR_OP, "predefined operations cannot be freed"));
        }
        OPS.remove(handle.0).ok_or_else(|| unknown(handle))?;
        // SAFETY: the caller's handle.
        unsafe { op.write(MPI_OP_NULL) };
        Ok(())
    }

    fn MPI_Op_commutative(op: MPI_Op, commute: *mut c_int) on none {
        let commutative = match predefined(op) {
            Some(Op::Replace | Op::NoOp) => false,
            Some(_) => true,
            None => OPS.get(op.0).ok_or_else(|| unknown(op))?.commutative,
        };
        // SAFETY: the caller's result.
        unsafe { commute.write(c_int::from(commutative)) };
        Ok(())
    }

    fn MPI_Reduce_local / MPI_Reduce_local_c(inbuf: *const c_void, inoutbuf: *mut c_void, count: Count, datatype: MPI_Datatype, op: MPI_Op) on none {
        // SAFETY: the caller's buffers.
        unsafe { reduce_local(inbuf, inoutbuf, count.wide(), datatype, op) }
    }
}

/// # Safety
/// Both buffers hold as many elements, and do not overlap.
unsafe fn reduce_local(
    inbuf: *const c_void,
    inoutbuf: *mut c_void,
    count: i64,
    datatype: MPI_Datatype,
    op: MPI_Op,
) -> Result<()> {
    let elements = crate::count::count("count", count)?;
    if inbuf.addr() == MPI_IN_PLACE || inoutbuf.addr() == MPI_IN_PLACE {
        return Err(fail(MPI_ERR_BUFFER, "MPI_IN_PLACE is not allowed here"));
    }
    if let Some(user) = OPS.get(op.0) {
        data::element(datatype)?;
        // SAFETY: the caller's buffers, as they are.
        unsafe { user.call(inbuf.cast_mut().cast(), inoutbuf.cast(), elements, datatype) };
        return Ok(());
    }
    let combination = combination(op, datatype)?;
    let len = data::bytes(elements, combination.reduction.extent())?;
    if len == 0 {
        return Ok(());
    }
    if inbuf.is_null() || inoutbuf.is_null() {
        return Err(fail(MPI_ERR_BUFFER, "a buffer is a null pointer, and the count is not 0"));
    }
    if inbuf.addr().abs_diff(inoutbuf.addr()) < len {
        return Err(fail(MPI_ERR_BUFFER, "the buffers overlap"));
    }
    // SAFETY: this function's contract; predefined types are whole elements.
    let (from, into) = unsafe {
        (
            std::slice::from_raw_parts(inbuf.cast::<u8>(), len),
            std::slice::from_raw_parts_mut(inoutbuf.cast::<u8>(), len),
        )
    };
    combination.reduction.combine(from, into);
    Ok(())
}
