//! Who else had the cores: what the host of a virtual machine took from them, and what ran on them that is no part of the job.
//!
//! The system counts both to the nanosecond. The second is in `/proc/PID/task/TID/schedstat`. The first it tells in hundredths of a second only
//! (`/proc/stat`, "steal"), so a program of a few instructions asks each core's run queue for it (`prev_steal_time_rq`, which the scheduler takes
//! off the time of threads). Without the right to load one, or in a kernel that keeps no such account, [`Others::new`] says why there is none.

#![allow(unsafe_code)] // bpf(2), whose wrappers bring a compiler along

use rustix::fd::{AsRawFd, FromRawFd, OwnedFd};
use rustix::process::{Pid, getpid, getppid};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::collections::HashMap;
use std::error::Error;
use std::fs::{File, read, read_dir, read_to_string};
use std::os::unix::fs::FileExt;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The accounts of this machine, kept open.
pub struct Others {
    cores: Vec<usize>,
    stolen: std::result::Result<Stolen, String>,
    /// Threads that are no part of the job: what they are called, and where their time is told.
    threads: Vec<(String, File)>,
}

/// What everybody had until a moment, in nanoseconds.
pub struct Account {
    stolen: Vec<u64>,
    threads: Vec<u64>,
}

impl Others {
    /// Asks for the accounts of all cores that the job may use: those of its launcher.
    pub fn new() -> Result<Others> {
        let ours = sched_getaffinity(getppid())?;
        let cores = (0..CpuSet::MAX_CPU).filter(|&core| ours.is_set(core)).collect();
        let stolen = Stolen::new().map_err(|error| error.to_string());
        Ok(Others { cores, stolen, threads: threads_of_others()? })
    }

    /// Why nobody knows what the host took, if nobody does.
    pub fn unknown(&self) -> Option<&str> {
        self.stolen.as_ref().err().map(String::as_str)
    }

    /// What everybody had until now. The calling thread is on each core for a moment: the scheduler brings a core's account up to date then.
    pub fn until_now(&self) -> Result<Account> {
        let stay = sched_getaffinity(None)?;
        let mut stolen = Vec::new();
        if let Ok(account) = &self.stolen {
            for &core in &self.cores {
                let mut there = CpuSet::new();
                there.set(core);
                sched_setaffinity(None, &there)?;
                stolen.push(account.here()?);
            }
            sched_setaffinity(None, &stay)?;
        }
        Ok(Account { stolen, threads: self.threads.iter().map(|(_, file)| had(file)).collect() })
    }

    /// Who had at least `least` nanoseconds between two moments: name and time, the host as "the host, from core N".
    pub fn between(&self, from: &Account, to: &Account, least: u64) -> Vec<(String, u64)> {
        let host = self.cores.iter().map(|core| format!("the host, from core {core}"));
        let host = host.zip(to.stolen.iter().zip(&from.stolen));
        let names = self.threads.iter().map(|(name, _)| name.clone());
        let threads = names.zip(to.threads.iter().zip(&from.threads));
        let times = host.chain(threads).map(|(name, (to, from))| (name, to.saturating_sub(*from)));
        times.filter(|(_, time)| *time >= least).collect()
    }
}

/// Whether it is a thread of the kernel that may have worked for the job: its time is told, but excuses nothing.
pub fn may_serve_the_job(who: &str) -> bool {
    ["kworker/", "ksoftirqd/", "migration/", "rcu"].iter().any(|name| who.starts_with(name))
}

/// The time a thread has had, 0 if it is gone.
fn had(schedstat: &File) -> u64 {
    let mut text = [0; 64];
    let length = schedstat.read_at(&mut text, 0).unwrap_or(0);
    let text = std::str::from_utf8(&text[..length]).unwrap_or_default();
    text.split(' ').next().and_then(|time| time.parse().ok()).unwrap_or(0)
}

/// All threads but those of the launcher and its children.
fn threads_of_others() -> Result<Vec<(String, File)>> {
    let launcher = getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let mut threads = Vec::new();
    for process in read_dir("/proc")? {
        let path = process?.path();
        let Some(pid) = path.file_name().and_then(|name| name.to_str()?.parse::<i32>().ok()) else {
            continue;
        };
        // Whoever ends meanwhile needs no core any more.
        let Ok(status) = read_to_string(path.join("stat")) else { continue };
        // "pid (name) state parent …"; the name may hold anything.
        let after = status.rsplit(')').next().unwrap_or_default();
        let parent = after.split_whitespace().nth(1).and_then(|text| text.parse::<i32>().ok());
        let this = Some(getpid()) == Pid::from_raw(pid);
        if this || pid == launcher || parent == Some(launcher) {
            continue;
        }
        for task in read_dir(path.join("task")).into_iter().flatten().flatten() {
            let name = read_to_string(task.path().join("comm")).unwrap_or_default();
            if let Ok(file) = File::open(task.path().join("schedstat")) {
                threads.push((name.trim().to_string(), file));
            }
        }
    }
    Ok(threads)
}

/// A program in the kernel that returns what the host took from the core it runs on.
struct Stolen {
    program: OwnedFd,
}

/// One instruction: operation, registers (source in the upper half), offset, constant.
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction(u8, u8, i16, i32);

/// What bpf(2) takes for `BPF_PROG_LOAD`, as far as it is used.
#[repr(C)]
struct Load {
    kind: u32,
    instructions: u32,
    program: u64,
    license: u64,
    unused: [u64; 14],
}

/// What bpf(2) takes for `BPF_PROG_TEST_RUN`, as far as it is used.
#[repr(C)]
struct Run {
    program: u32,
    result: u32,
    unused: [u64; 15],
}

const PROG_LOAD: i32 = 5;
const PROG_TEST_RUN: i32 = 10;
const RAW_TRACEPOINT: u32 = 17;
const GET_CURRENT_TASK_BTF: i32 = 158;

impl Stolen {
    fn new() -> Result<Stolen> {
        let types = Types::of_the_kernel()?;
        let entity = types.offset("task_struct", "se")?;
        let steps = [
            entity + types.offset("sched_entity", "cfs_rq")?,
            types.offset("cfs_rq", "rq")?,
            types.offset("rq", "prev_steal_time_rq")?,
        ];
        let mut program = vec![Instruction(0x85, 0, 0, GET_CURRENT_TASK_BTF)];
        for offset in steps {
            program.push(Instruction(0x79, 0, i16::try_from(offset)?, 0)); // r0 = *(r0 + offset)
        }
        program.push(Instruction(0x77, 0, 0, 10)); // r0 >>= 10: the result has 32 bits
        program.push(Instruction(0x95, 0, 0, 0)); // return r0
        let load = Load {
            kind: RAW_TRACEPOINT,
            instructions: u32::try_from(program.len())?,
            program: program.as_ptr() as u64,
            license: c"GPL".as_ptr() as u64,
            unused: [0; 14],
        };
        // SAFETY: what it points to outlives the call; the kernel checks the program.
        let number =
            unsafe { libc::syscall(libc::SYS_bpf, PROG_LOAD, &raw const load, size_of::<Load>()) };
        if number < 0 {
            let error = std::io::Error::last_os_error();
            return Err(format!("the kernel takes no program: {error}").into());
        }
        // SAFETY: the descriptor is new and nobody else's.
        let program = unsafe { OwnedFd::from_raw_fd(i32::try_from(number)?) };
        Ok(Stolen { program })
    }

    /// Nanoseconds until now, of the core of the calling thread; a step is 1,024.
    fn here(&self) -> Result<u64> {
        let number = u32::try_from(self.program.as_raw_fd())?;
        let mut run = Run { program: number, result: 0, unused: [0; 15] };
        // SAFETY: there is no context, input nor output beside the result.
        let answer =
            unsafe { libc::syscall(libc::SYS_bpf, PROG_TEST_RUN, &raw mut run, size_of::<Run>()) };
        if answer < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        Ok(u64::from(run.result) << 10)
    }
}

/// The offsets of members of the kernel's structures, from its own description (BTF).
struct Types {
    offsets: HashMap<(String, String), u32>,
}

impl Types {
    fn of_the_kernel() -> Result<Types> {
        let path = "/sys/kernel/btf/vmlinux";
        let bytes = read(path).map_err(|error| format!("{path}: {error}"))?;
        Types::parse(&bytes).ok_or_else(|| format!("{path}: not as expected").into())
    }

    fn parse(bytes: &[u8]) -> Option<Types> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let header = word(4)? as usize;
        let names = header + word(16)? as usize;
        let name = |offset: u32| {
            let text = bytes.get(names + offset as usize..)?;
            let end = text.iter().position(|&byte| byte == 0)?;
            std::str::from_utf8(&text[..end]).ok()
        };
        let mut at = header + word(8)? as usize;
        let end = at + word(12)? as usize;
        let mut offsets = HashMap::new();
        while at < end {
            let (called, info) = (name(word(at)?)?, word(at + 4)?);
            let (kind, count) = (info >> 24 & 31, (info & 0xffff) as usize);
            at += 12;
            // The structures asked for are few and no others are kept.
            let wanted = ["task_struct", "sched_entity", "cfs_rq", "rq"].contains(&called);
            if kind == 4 && wanted {
                for member in (0..count).map(|index| at + 12 * index) {
                    let bits = word(member + 8)? & if info >> 31 == 1 { 0xff_ffff } else { !0 };
                    let key = (called.to_string(), name(word(member)?)?.to_string());
                    offsets.insert(key, bits / 8);
                }
            }
            at += match kind {
                1 | 14 | 17 => 4,              // an integer, a variable, a tag of a declaration
                3 => 12,                       // an array
                4 | 5 | 15 | 19 => 12 * count, // structures and unions, sections, long enumerations
                6 | 13 => 8 * count,           // enumerations, parameters
                _ => 0,
            };
        }
        Some(Types { offsets })
    }

    fn offset(&self, of: &str, member: &str) -> Result<u32> {
        let key = (of.to_string(), member.to_string());
        let found = self.offsets.get(&key).copied();
        found.ok_or_else(|| format!("the kernel has no {member} in its {of}").into())
    }
}
