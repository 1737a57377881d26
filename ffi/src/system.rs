//! System calls without a safe wrapper elsewhere: reading another process's memory (cross-memory
//! attach), asking which `membarrier` commands the kernel has, and short slices of a core; and what
//! processors are known for.
#![allow(unsafe_code)] // All are raw system calls.

use std::io;
use std::time::Duration;

/// Reads `into.len()` bytes at `address` of process `pid` by one `process_vm_readv`.
///
/// # Errors
/// `EPERM` where ptrace scope or a container forbids it, `ESRCH` for no such process, `EFAULT` for
/// an address that is not mapped there, `UnexpectedEof` for a partial read.
pub fn read_process_memory(pid: i32, address: usize, into: &mut [u8]) -> io::Result<()> {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast(), iov_len: into.len() };
    let remote = libc::iovec { iov_base: address as *mut libc::c_void, iov_len: into.len() };
    // SAFETY: the kernel writes at most `into.len()` bytes through `local`, which is exactly `into`;
    // the remote address is checked by the kernel, not followed here.
    let read = unsafe { libc::process_vm_readv(pid, &local, 1, &remote, 1, 0) };
    match read {
        -1 => Err(io::Error::last_os_error()),
        length if length as usize == into.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// The bits of the `membarrier` commands this kernel has (`MEMBARRIER_CMD_*`).
///
/// # Errors
/// `ENOSYS` where there is none, `EPERM` where a container forbids it.
pub fn membarrier_commands() -> io::Result<u64> {
    const QUERY: libc::c_long = 0;
    // SAFETY: MEMBARRIER_CMD_QUERY takes no pointer and changes nothing.
    let commands = unsafe { libc::syscall(libc::SYS_membarrier, QUERY, 0 as libc::c_long) };
    if commands < 0 { Err(io::Error::last_os_error()) } else { Ok(commands as u64) }
}

/// Asks the scheduler for slices of `slice` for this thread, without any privilege: a thread that sleeps most of the time
/// then gets the core soon after it wakes up, before others have used up their longer slices. What it starts gets the
/// default back. A thread of another policy than the usual one keeps it.
///
/// # Errors
/// Kernels before 6.12 take the call and change nothing; a container may forbid it (`EPERM`).
pub fn prefer_short_slices(slice: Duration) -> io::Result<()> {
    const RESET_ON_FORK: u64 = 1;
    // SAFETY: takes no pointer; the calling thread's own policy is always there.
    if unsafe { libc::sched_getscheduler(0) } & !libc::SCHED_RESET_ON_FORK != libc::SCHED_OTHER {
        return Ok(());
    }
    // SAFETY: takes no pointer; the calling thread's own priority is always there.
    let nice = unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
    let attributes = libc::sched_attr {
        size: size_of::<libc::sched_attr>() as u32,
        sched_policy: libc::SCHED_OTHER as u32,
        sched_flags: RESET_ON_FORK,
        sched_nice: nice,
        sched_priority: 0,
        sched_runtime: slice.as_nanos().min(u128::from(u64::MAX)) as u64,
        sched_deadline: 0,
        sched_period: 0,
    };
    let (this_thread, no_flags): (libc::c_long, libc::c_long) = (0, 0);
    // SAFETY: the kernel only reads `size` bytes of `attributes`, which is that long.
    let set = unsafe {
        libc::syscall(libc::SYS_sched_setattr, this_thread, &raw const attributes, no_flags)
    };
    if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Whether this processor moves strings (`rep movsb`, what the kernel and the C library copy by) many times more slowly than usual
/// where the target lies 1 to 31 bytes ahead of the source, counted within pages: AMD's of family 25 (Zen 3 and 4) that claim fast short
/// moves. Measured on a Zen 3 (32 KiB: 20 us instead of 0.8).
#[must_use]
pub fn slow_just_ahead() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{__cpuid, __cpuid_count};
        let name = __cpuid(0);
        if name.eax < 7 || [name.ebx, name.edx, name.ecx].map(u32::to_le_bytes).concat() != AMD {
            return false;
        }
        let signature = __cpuid(1).eax;
        let family = (signature >> 8 & 0xf) + (signature >> 20 & 0xff);
        let fast_short_moves = __cpuid_count(7, 0).edx >> 4 & 1;
        family == 25 && fast_short_moves == 1
    }
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[cfg(target_arch = "x86_64")]
const AMD: &[u8] = b"AuthenticAMD";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_slices_may_be_asked_for() {
        let asked = std::thread::spawn(|| prefer_short_slices(Duration::from_micros(100)));
        if let Err(error) = asked.join().expect("the thread returns") {
            println!("SKIP short_slices_may_be_asked_for: {error}");
        }
    }

    #[test]
    fn what_the_kernel_calls_the_processor_agrees() {
        let all = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let has = |line: &str| all.lines().any(|it| it.replace('\t', "") == line);
        let known = has("vendor_id: AuthenticAMD") && has("cpu family: 25");
        let moves = all.lines().any(|it| it.starts_with("flags") && it.contains(" fsrm"));
        assert_eq!(slow_just_ahead(), known && moves);
    }

    #[test]
    fn own_memory_is_readable_and_an_unmapped_address_is_an_error() {
        let secret = [7u8; 32];
        let mut copy = [0u8; 32];
        let pid = std::process::id() as i32;
        match read_process_memory(pid, secret.as_ptr() as usize, &mut copy) {
            Ok(()) => assert_eq!(copy, secret),
            Err(error) => {
                println!("SKIP own_memory_is_readable: process_vm_readv: {error}");
                return;
            }
        }
        assert_eq!(
            read_process_memory(pid, 1, &mut copy).unwrap_err().raw_os_error(),
            Some(libc::EFAULT)
        );
    }
}
