//! What a rail is opened with, and which transports on which devices become rails.

use ironweave_btl::Peer;
use ironweave_ffi_uct::{DeviceKind, KERNEL, Resource, Uct, UctError, defaults};
use std::time::Duration;

/// How UCT is used.
#[derive(Clone, Debug)]
pub struct UctConfig {
    /// Who this process is.
    pub me: Peer,
    /// The job secret.
    pub secret: [u8; 32],
    /// The job's name.
    pub job: String,
    /// The library, by soname or path; `None`: `IRONWEAVE_UCT_LIB`, or libuct.so.0.
    pub library: Option<String>,
    /// Transports to use, by name (`posix`, `tcp`, `rc_verbs`); empty: posix, and the best network there is. `cma` beside one
    /// of shared memory has long messages read out of the sender's memory.
    pub transports: Vec<String>,
    /// Devices to use (`mlx5_0:1`, `eth0`); empty: all, loopback only when there is no other. Memory is not asked for by
    /// name.
    pub devices: Vec<String>,
    /// At most so many devices of a network become rails.
    pub rails: usize,
    /// Longest payload of one frame, in bytes; less where a transport cannot. 0: as long as serves the transport best.
    pub frame: usize,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long nothing may get through to a peer that something is sent to, before it becomes a suspect; zero: for ever.
    pub peer_timeout: Duration,
    /// How often each peer is checked, where the transport can.
    pub check: Duration,
    /// How long a process that has finalized waits for its peers to see it.
    pub linger: Duration,
    /// What is connected where a transport has two ways.
    pub connect: Connect,
}

/// What is connected to what, where a transport can do both.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Connect {
    /// As serves the transport best.
    #[default]
    Best,
    /// Endpoints to a peer's interface: no greetings beforehand.
    Interfaces,
    /// Endpoints to each other, as greetings over another line say.
    Endpoints,
}

impl Connect {
    /// Whether endpoints of `transport`, which can do both, are connected to each other.
    ///
    /// Over tcp UCX closes a stream between endpoints with its endpoint, so that user memory which is being sent can be taken back at
    /// any moment (law 2). A stream to an interface stays open for the other direction, and half a message would stay in it.
    pub(crate) fn by_endpoints(self, transport: &str) -> bool {
        match self {
            Connect::Best => transport == "tcp",
            Connect::Interfaces => false,
            Connect::Endpoints => true,
        }
    }
}

impl Default for UctConfig {
    fn default() -> Self {
        UctConfig {
            me: Peer(0),
            secret: [0; 32],
            job: String::new(),
            library: None,
            transports: Vec::new(),
            devices: Vec::new(),
            rails: 4,
            frame: 0,
            connect_timeout: Duration::from_secs(30),
            peer_timeout: Duration::from_secs(300),
            check: Duration::from_millis(100),
            linger: Duration::from_secs(1),
            connect: Connect::Best,
        }
    }
}

/// No rail could be opened: why, in words for people.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The library, or a call of it.
    #[error("uct: {0}")]
    Library(#[from] UctError),
    /// A call for one transport.
    #[error("uct: {transport} on {device}: {error}")]
    Transport {
        /// Which.
        transport: String,
        /// On what.
        device: String,
        /// What it says.
        error: UctError,
    },
    /// A transport that cannot carry messages, or not in a way that is known here.
    #[error("uct: {transport} on {device} cannot be used: {why}")]
    Unfit {
        /// Which.
        transport: String,
        /// On what.
        device: String,
        /// What it lacks.
        why: &'static str,
    },
    /// What was asked for is not there.
    #[error("uct: no {what} {name}; there are {offered}")]
    Nothing {
        /// `transport` or `device`.
        what: &'static str,
        /// The name that was asked for.
        name: String,
        /// What the library offers.
        offered: String,
    },
    /// The kernel has no randomness to give.
    #[error("uct: getrandom: {0}")]
    Random(rustix::io::Errno),
    /// A frame size that cannot work.
    #[error("uct: btl_uct_frame_size is {0} bytes; it can be 1k to 8M, or 0")]
    FrameSize(usize),
}

/// What is open to be a rail, in order: transports as they were named, devices as the library has them.
pub(crate) fn choose(uct: &Uct, config: &UctConfig) -> Result<Vec<Resource>, OpenError> {
    sift(uct.resources()?, config)
}

/// An interface for greetings, on the same device if possible.
pub(crate) fn letters(uct: &Uct, main: &Resource) -> Result<Option<Resource>, OpenError> {
    let mut resources = uct.resources()?;
    let rank = |resource: &Resource| match resource.transport.as_str() {
        "ud_verbs" | "ud_mlx5" if resource.device == main.device => 0,
        "tcp" if resource.device == main.device => 1,
        "tcp" if resource.device != "lo" => 2,
        _ => 3,
    };
    resources.retain(|resource| rank(resource) < 3);
    Ok(resources.into_iter().min_by_key(rank))
}

/// What reaches the memory of peers for `main`, where that is asked for and does not by itself.
pub(crate) fn reader(
    uct: &Uct,
    config: &UctConfig,
    main: &Resource,
) -> Result<Option<Resource>, OpenError> {
    let asked = config.transports.iter().any(|name| name == KERNEL);
    if !asked || main.kind != DeviceKind::SharedMemory {
        return Ok(None);
    }
    Ok(uct.resources()?.into_iter().find(|resource| resource.transport == KERNEL))
}

fn sift(resources: Vec<Resource>, config: &UctConfig) -> Result<Vec<Resource>, OpenError> {
    let has = |name: &str| resources.iter().any(|resource| resource.transport == name);
    let wanted: Vec<&str> = match config.transports.is_empty() {
        true => defaults(&resources),
        false => config.transports.iter().map(String::as_str).collect(),
    };
    let offered = |of: fn(&Resource) -> &str| {
        let mut names: Vec<&str> = Vec::new();
        for resource in &resources {
            if !names.contains(&of(resource)) {
                names.push(of(resource));
            }
        }
        names.join(", ")
    };
    let nothing = |what, name: &str, of: fn(&Resource) -> &str| OpenError::Nothing {
        what,
        name: name.to_owned(),
        offered: offered(of),
    };
    if let Some(name) = wanted.iter().find(|name| !has(name)) {
        return Err(nothing("transport", name, |resource| &resource.transport));
    }
    if let Some(name) = config
        .devices
        .iter()
        .find(|name| resources.iter().all(|resource| resource.device != **name))
    {
        return Err(nothing("device", name, |resource| &resource.device));
    }
    let memory = |name: &&str| {
        *name != KERNEL
            && resources.iter().any(|resource| {
                resource.transport == *name && resource.kind == DeviceKind::SharedMemory
            })
    };
    let beside = wanted.iter().any(memory);
    let mut chosen = Vec::new();
    for name in wanted {
        if name == KERNEL && beside {
            continue;
        }
        let mut rails: Vec<&Resource> =
            resources.iter().filter(|resource| resource.transport == name).collect();
        let network = rails.iter().any(|rail| rail.kind == DeviceKind::Network);
        if network && !config.devices.is_empty() {
            rails.retain(|rail| config.devices.contains(&rail.device));
        } else if rails.iter().any(|rail| rail.device != "lo") {
            rails.retain(|rail| rail.device != "lo");
        }
        rails.truncate(config.rails.max(1));
        chosen.extend(rails.into_iter().cloned());
    }
    match chosen.is_empty() {
        true => Err(nothing("device", &config.devices.join(", "), |resource| &resource.device)),
        false => Ok(chosen),
    }
}

/// Longest payload of one frame over `resource`, in bytes, where the transport can.
pub(crate) fn frame(config: &UctConfig, resource: &Resource) -> usize {
    match (config.frame, resource.transport.as_str()) {
        // Seen: 1 MiB in 225 instead of 353 µs with frames of 32 KiB, on a loopback.
        (0, "tcp") => 256 << 10,
        (0, _) => 32 << 10,
        (given, _) if resource.kind == DeviceKind::SharedMemory => given.min(QUEUE_FRAME_MAX),
        (given, _) => given,
    }
}

/// Longest payload of a frame where UCX counts a message's length in 16 bits, in bytes.
const QUEUE_FRAME_MAX: usize = 60 << 10;
/// Places in a queue in shared memory, each with a buffer of a frame's size. A power of two.
const QUEUE: usize = 64;

/// Names and values of a transport's own configuration; what the user's `UCX_…` variables say of these is overruled.
pub(crate) fn settings(resource: &Resource, message: usize) -> Vec<(&'static str, String)> {
    let size = message.to_string();
    match resource.transport.as_str() {
        "tcp" => vec![
            ("RX_SEG_SIZE", message.max(64 << 10).to_string()),
            ("TX_SEG_SIZE", size),
            // A put over tcp is written by the target's process, to whatever address the peer says.
            ("PUT_ENABLE", String::from("n")),
        ],
        "posix" | "sysv" | "xpmem" => vec![
            ("SEG_SIZE", size),
            // Both ends must agree on these two: a writer takes the reader's queue to be as its own.
            ("FIFO_SIZE", QUEUE.to_string()),
            ("FIFO_ELEM_SIZE", String::from("128")),
            // Buffers are mapped ahead, as many as are needed at least.
            ("RX_BUFS_GROW", (QUEUE + 2).to_string()),
        ],
        "self" => vec![("SEG_SIZE", size)],
        // Seven retries are endless ones on some devices. With these a peer that does not answer shows in two seconds.
        "rc_verbs" | "rc_mlx5" => vec![
            ("TIMEOUT", String::from("250ms")),
            ("RETRY_COUNT", String::from("6")),
            ("RNR_RETRY_COUNT", String::from("6")),
            // As many bytes, and fewer, no get into user memory fetches: all lengths are wanted.
            ("TX_INLINE_RESP", String::from("0")),
        ],
        // UCX asks the completion whether a packet has an IPv4 header, which only Mellanox's devices tell, and drops it as
        // not its own otherwise. Greetings are sealed, and name whom they are for.
        "ud_verbs" => vec![("ETH_DGID_CHECK", String::from("n"))],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resources() -> Vec<Resource> {
        let row = |transport: &str, device: &str, kind| Resource {
            component: transport.to_owned(),
            domain: transport.to_owned(),
            transport: transport.to_owned(),
            device: device.to_owned(),
            kind,
        };
        vec![
            row("self", "memory", DeviceKind::Loopback),
            row("tcp", "lo", DeviceKind::Network),
            row("tcp", "eth0", DeviceKind::Network),
            row("posix", "memory", DeviceKind::SharedMemory),
            row("cma", "memory", DeviceKind::SharedMemory),
        ]
    }

    fn chosen(transports: &[&str], devices: &[&str]) -> Result<Vec<String>, String> {
        let strings = |list: &[&str]| list.iter().map(|&name| name.to_owned()).collect();
        let config = UctConfig {
            transports: strings(transports),
            devices: strings(devices),
            ..UctConfig::default()
        };
        let rails = sift(resources(), &config).map_err(|error| error.to_string())?;
        Ok(rails.iter().map(|rail| format!("{}/{}", rail.transport, rail.device)).collect())
    }

    #[test]
    fn what_is_asked_for_is_taken_and_nothing_else() {
        assert_eq!(chosen(&[], &[]).unwrap(), ["posix/memory", "tcp/eth0"]);
        assert_eq!(chosen(&["tcp"], &["lo"]).unwrap(), ["tcp/lo"]);
        assert_eq!(chosen(&["tcp", "self"], &["lo"]).unwrap(), ["tcp/lo", "self/memory"]);
        assert_eq!(chosen(&["cma", "posix"], &[]).unwrap(), ["posix/memory"]);
        // Alone it becomes a rail, which then says what it lacks.
        assert_eq!(chosen(&["cma"], &[]).unwrap(), ["cma/memory"]);
        let error = chosen(&["rc_verbs"], &[]).unwrap_err();
        assert_eq!(error, "uct: no transport rc_verbs; there are self, tcp, posix, cma");
        let error = chosen(&["tcp"], &["mlx5_0:1"]).unwrap_err();
        assert_eq!(error, "uct: no device mlx5_0:1; there are memory, lo, eth0");
    }
}
