//! A /dev/shm for one test and the processes that it starts: for libraries that share files there with all processes of a user, and leave
//! them when one is killed. It goes with the last of those processes (law 8 is not theirs to break).
#![allow(unsafe_code)] // a system call

use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::thread::{UnshareFlags, unshare_unsafe};

/// Gives this thread, and what it starts from now on, an empty /dev/shm that nobody else sees.
///
/// # Errors
/// Why this machine does not let us, in words.
pub fn own_shared_memory() -> Result<(), String> {
    let told = |error| format!("no /dev/shm of one's own: {error}");
    // SAFETY: descriptors stay shared; only what paths lead to becomes this thread's own.
    unsafe { unshare_unsafe(UnshareFlags::NEWNS) }.map_err(told)?;
    let private = MountPropagationFlags::REC | MountPropagationFlags::PRIVATE;
    mount_change("/", private).map_err(told)?;
    mount("tmpfs", "/dev/shm", "tmpfs", MountFlags::empty(), None).map_err(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_one_thread_leaves_there_nobody_else_finds() {
        let name = format!("/dev/shm/ironweave-own-{}", std::process::id());
        let there = || std::fs::exists(&name).expect("a folder");
        let made = std::thread::scope(|scope| {
            let made = scope.spawn(|| {
                own_shared_memory()?;
                std::fs::write(&name, "left").map_err(|error| error.to_string())?;
                Ok::<_, String>(there())
            });
            made.join().expect("no panic")
        });
        match made {
            Ok(made) => assert_eq!((made, there()), (true, false)),
            Err(reason) => println!("SKIP own_shared_memory: {reason}"),
        }
    }
}
