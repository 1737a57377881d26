//! Memory for messages (MPI 5.0, §9.2), aligned to pages where it is large. Any memory can be sent from here; this is
//! registered with RDMA devices once and for all.

use crate::prelude::*;
use ironweave_btl::lasting;

/// Alignment of large pieces.
const PAGE: usize = 4096;
/// Alignment of small ones.
const LINE: usize = 64;

mpi! {
    fn MPI_Alloc_mem(size: MPI_Aint, info: MPI_Info, baseptr: *mut c_void) on none {
        let pairs = crate::info::hints(info)?;
        let Ok(size) = usize::try_from(size) else {
            return Err(fail(MPI_ERR_ARG, format!("the size is {size}, which is negative")));
        };
        let wanted = pairs.iter().flat_map(|pairs| pairs.iter()).find(|(key, _)| key == "mpi_minimum_memory_alignment");
        let wanted = wanted.and_then(|(_, value)| value.parse().ok()).filter(|align: &usize| align.is_power_of_two());
        let align = if size >= PAGE { PAGE } else { LINE }.max(wanted.unwrap_or(1));
        let short = || fail(MPI_ERR_NO_MEM, format!("no memory for {size} bytes"));
        let layout = std::alloc::Layout::from_size_align(size.max(1), align).map_err(|_| short())?;
        let start = lasting::allocate(layout).ok_or_else(short)?;
        // SAFETY: the caller's result: a pointer to a pointer.
        unsafe { baseptr.cast::<*mut u8>().write(start.as_ptr()) };
        Ok(())
    }

    fn MPI_Free_mem(base: *mut c_void) on none {
        if base.is_null() {
            return Ok(());
        }
        match lasting::release(base.cast()) {
            true => Ok(()),
            false => Err(fail(MPI_ERR_BASE, "MPI_Alloc_mem did not give this memory")),
        }
    }
}
