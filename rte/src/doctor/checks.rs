//! The doctor's checks, one function each.

use super::{Finding, Level};
use crate::launch::placement;
use crate::liveness::{Liveness, LivenessWriter};
use crate::params::sources;
use ironweave_ffi::ofi::Standing;
use ironweave_ffi::probe::{self, probe};
use ironweave_ffi::system;
use ironweave_ffi_uct::{self as ucx, Uct};
use rustix::process::{PidfdFlags, Resource, getrlimit, pidfd_open};
use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::process::{Command, Stdio};

/// Memory that may be locked below which registered buffers run out quickly.
const MEMLOCK_LOW: u64 = 64 << 20;
/// What the cross-memory probe looks for.
static KNOWN_TEXT: [u8; 32] = *b"ironweave doctor reads this text";

const MIB: u64 = 1 << 20;

pub(super) fn memfd() -> Finding {
    let page = LivenessWriter::new(4).and_then(|writer| Liveness::map(writer.as_fd(), 4));
    match page {
        Ok(_) => Finding::new("memfd sealing", Level::Ok, "works"),
        Err(error) => Finding::new(
            "memfd sealing",
            Level::Error,
            format!(
                "{error}; shared memory and the liveness page need memfd_create and seals \
                     (Linux 3.17, and a container that allows them)"
            ),
        ),
    }
}

pub(super) fn pidfd() -> Finding {
    match pidfd_open(rustix::process::getpid(), PidfdFlags::empty()) {
        Ok(_) => Finding::new("pidfd", Level::Ok, "works"),
        Err(error) => Finding::new(
            "pidfd",
            Level::Error,
            format!(
                "{error}; the launcher learns of deaths by it: it needs Linux 5.4, and a \
                     container that allows pidfd_open"
            ),
        ),
    }
}

pub(super) fn abstract_sockets() -> Finding {
    let bound = crate::secret::fresh_name().map_err(|error| error.to_string()).and_then(|name| {
        let address = SocketAddr::from_abstract_name(format!("ironweave-doctor-{name}"));
        address.and_then(|address| UnixListener::bind_addr(&address)).map_err(|e| e.to_string())
    });
    match bound {
        Ok(_) => Finding::new("abstract sockets", Level::Ok, "work"),
        Err(error) => Finding::new(
            "abstract sockets",
            Level::Error,
            format!("{error}; ranks of a host meet by them: without, use --mca btl ^shm"),
        ),
    }
}

pub(super) fn cross_memory_attach() -> Finding {
    let subject = "cross-memory attach";
    let address = KNOWN_TEXT.as_ptr() as usize;
    let output = Command::new("/proc/self/exe")
        .arg("cma-probe")
        .arg(std::process::id().to_string())
        .arg(address.to_string())
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            Finding::new(subject, Level::Ok, "process_vm_readv works between processes")
        }
        Ok(output) => {
            let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            let words = format!(
                "process_vm_readv is refused ({why}); large messages between ranks of a host are \
                 copied through the ring instead, which is slower on most bare metal"
            );
            Finding::new(subject, Level::Warning, words)
        }
        Err(error) => Finding::new(subject, Level::Warning, format!("cannot be tried: {error}")),
    }
}

pub(super) fn read_known_text(pid: i32, address: usize) -> Result<(), String> {
    let mut copy = [0u8; KNOWN_TEXT.len()];
    system::read_process_memory(pid, address, &mut copy).map_err(|error| error.to_string())?;
    match copy == KNOWN_TEXT {
        true => Ok(()),
        false => Err("it read something else".into()),
    }
}

pub(super) fn ptrace_scope() -> Finding {
    let subject = "ptrace scope";
    match std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope") {
        Err(_) => Finding::new(subject, Level::Ok, "not restricted (no Yama)"),
        Ok(text) => match text.trim() {
            "0" => Finding::new(subject, Level::Ok, "0: not restricted"),
            scope => Finding::new(
                subject,
                Level::Note,
                format!(
                    "{scope}: a rank may not read another's memory unless privileged; \
                         `sysctl kernel.yama.ptrace_scope=0` allows single-copy messages"
                ),
            ),
        },
    }
}

pub(super) fn membarrier() -> Finding {
    const PRIVATE_EXPEDITED: u64 = 1 << 3;
    match system::membarrier_commands() {
        Ok(commands) if commands & PRIVATE_EXPEDITED != 0 => {
            Finding::new("membarrier", Level::Ok, "works, expedited")
        }
        Ok(_) => Finding::new("membarrier", Level::Note, "there, but not expedited (Linux 4.14)"),
        Err(error) => Finding::new("membarrier", Level::Note, format!("not usable: {error}")),
    }
}

pub(super) fn dev_shm() -> Finding {
    let subject = "/dev/shm";
    match rustix::fs::statvfs("/dev/shm") {
        Ok(stat) => {
            let free = stat.f_bavail * stat.f_frsize / MIB;
            let level = if free < 64 { Level::Warning } else { Level::Ok };
            let words =
                format!("{free} MiB free (used by fabric libraries only, not by ironweave)");
            Finding::new(subject, level, words)
        }
        Err(error) => Finding::new(
            subject,
            Level::Warning,
            format!("{error}; ironweave does without, libfabric's shm and UCX's posix do not"),
        ),
    }
}

pub(super) fn memlock() -> Finding {
    match getrlimit(Resource::Memlock).current {
        None => Finding::new("locked memory", Level::Ok, "unlimited"),
        Some(bytes) if bytes >= MEMLOCK_LOW => {
            Finding::new("locked memory", Level::Ok, format!("{} MiB", bytes / MIB))
        }
        Some(bytes) => Finding::new(
            "locked memory",
            Level::Warning,
            format!(
                "limited to {} KiB: verbs and EFA cannot register buffers; set `* - memlock \
                     unlimited` in /etc/security/limits.conf (and LimitMEMLOCK= for the batch \
                     system's daemon). shm and tcp do not need it",
                bytes / 1024
            ),
        ),
    }
}

pub(super) fn descriptors() -> Finding {
    let limits = getrlimit(Resource::Nofile);
    let words = |limit: Option<u64>| limit.map_or("unlimited".to_owned(), |n| n.to_string());
    let text = format!("{} (at most {})", words(limits.current), words(limits.maximum));
    match limits.maximum {
        Some(maximum) if maximum < 4096 => Finding::new(
            "open descriptors",
            Level::Warning,
            format!(
                "{text}: a rank needs one per peer it talks to over tcp, the launcher six per \
                     rank; raise nofile in /etc/security/limits.conf"
            ),
        ),
        _ => Finding::new("open descriptors", Level::Ok, text),
    }
}

pub(super) fn cores() -> Finding {
    let placement::Cores { sets, order } = placement::cores();
    let threads: u32 = sets.iter().map(|core| core.count()).sum();
    let online = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let online = online.trim();
    match sets.len() {
        0 => Finding::new("cores", Level::Warning, "sched_getaffinity tells none: no binding"),
        count => Finding::new(
            "cores",
            Level::Ok,
            format!(
                "{count} cores, {threads} hardware threads allowed (online: {online}), \
                 order from {order}"
            ),
        ),
    }
}

pub(super) fn parameters() -> Finding {
    let files = sources::files();
    match sources::load(&[]) {
        Err(error) => Finding::new("parameters", Level::Error, error.to_string()),
        Ok(_) if files.is_empty() => Finding::new("parameters", Level::Ok, "no file, none wrong"),
        Ok(_) => {
            let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
            Finding::new("parameters", Level::Ok, format!("read from {}", names.join(", ")))
        }
    }
}

pub(super) fn interfaces() -> Vec<Finding> {
    let all = match ironweave_ffi::interfaces() {
        Ok(all) => all,
        Err(error) => {
            let words = format!("cannot be listed: {error}");
            return vec![Finding::new("interfaces", Level::Error, words)];
        }
    };
    let mut by_name: BTreeMap<&str, (bool, bool, Vec<String>)> = BTreeMap::new();
    for interface in &all {
        let entry = by_name.entry(&interface.name).or_default();
        entry.0 |= interface.up;
        entry.1 |= interface.loopback;
        entry.2.extend(interface.address.map(|address| address.to_string()));
    }
    let mut usable = false;
    let mut findings: Vec<Finding> = by_name
        .into_iter()
        .map(|(name, (up, loopback, addresses))| {
            usable |= up && !loopback && !addresses.is_empty();
            let subject = format!("interface {name}");
            let list = addresses.join(", ");
            match (up, loopback) {
                (false, true) => Finding::new(
                    subject,
                    Level::Warning,
                    format!("loopback is down: `ip link set {name} up`"),
                ),
                (false, false) => Finding::new(subject, Level::Note, "down: not used by tcp"),
                (true, _) if addresses.is_empty() => Finding::new(
                    subject,
                    Level::Note,
                    "up, but without an address: not used by tcp",
                ),
                (true, true) => Finding::new(subject, Level::Ok, format!("loopback, {list}")),
                (true, false) => Finding::new(subject, Level::Ok, format!("up, {list}")),
            }
        })
        .collect();
    if !usable {
        let words = "none is up with an address besides loopback: jobs run on this host only";
        findings.push(Finding::new("interfaces", Level::Warning, words));
    }
    findings
}

pub(super) fn ofi() -> Vec<Finding> {
    let fabrics = match crate::fabrics::fabrics() {
        Ok(fabrics) => fabrics,
        Err(error) => {
            let variable = ironweave_ffi::ofi::VARIABLE;
            let words = format!("not usable: {error}; {variable} names another library");
            return vec![Finding::new("ofi", Level::Note, words)];
        }
    };
    let library = match fabrics.taken() {
        Some(provider) => Finding::new(
            "ofi",
            Level::Ok,
            format!("{fabrics}; where it is named (--mca btl self,shm,ofi) it takes {provider}"),
        ),
        None => Finding::new("ofi", Level::Note, format!("{fabrics}: no provider is trusted")),
    };
    let each = fabrics.providers.iter().map(|provider| {
        let level = match provider.standing {
            Standing::Default | Standing::Named => Level::Ok,
            Standing::Refused(_) => Level::Note,
        };
        let words = format!("{}: {}", provider.domains.join(", "), fabrics.verdict(provider));
        Finding::new(format!("ofi {}", provider.name), level, words)
    });
    std::iter::once(library).chain(each).collect()
}

pub(super) fn uct() -> Vec<Finding> {
    let (uct, transports) = match Uct::open().and_then(|uct| Ok((uct, ucx::survey(uct)?))) {
        Ok(found) => found,
        Err(error) => {
            let words = format!("not usable: {error}; {} names another library", ucx::VARIABLE);
            return vec![Finding::new("uct", Level::Note, words)];
        }
    };
    let path = uct.path().unwrap_or_else(|| uct.name().into());
    let library = Finding::new("uct", Level::Ok, path.display().to_string());
    let each = |transport: ucx::Transport| {
        let level = match transport.standing {
            ucx::Standing::Default | ucx::Standing::Named | ucx::Standing::Beside => Level::Ok,
            ucx::Standing::Unfit(_) => Level::Note,
        };
        let words = format!("{}: {}", transport.devices.join(", "), transport.verdict());
        Finding::new(format!("uct {}", transport.name), level, words)
    };
    std::iter::once(library).chain(transports.into_iter().map(each)).collect()
}

pub(super) fn rdma() -> Vec<Finding> {
    let params = sources::load(&[]).unwrap_or_default(); // what is wrong with them is a finding of its own
    let ports = crate::rdma::ports(&params);
    if ports.is_empty() {
        let words = "no RDMA device; tcp is used between hosts";
        return vec![Finding::new("verbs", Level::Note, words)];
    }
    let level = |port: &crate::rdma::Port| match port.unused {
        None => Level::Ok,
        Some(_) => Level::Note,
    };
    ports
        .iter()
        .map(|port| Finding::new(format!("verbs {}", port.name), level(port), port.to_string()))
        .collect()
}

pub(super) fn libraries() -> Vec<Finding> {
    probe::KNOWN
        .iter()
        .map(|known| match probe(known) {
            Ok(found) => Finding::new(
                known.name,
                Level::Ok,
                format!("{} ({})", found.version, found.path.display()),
            ),
            Err(error) => Finding::new(
                known.name,
                Level::Note,
                format!(
                    "not usable: {error}; it is needed for {} (Debian: {})",
                    known.brings, known.package
                ),
            ),
        })
        .collect()
}
