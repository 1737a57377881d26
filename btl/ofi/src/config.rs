//! What a rail is opened with, and which providers and domains become rails.

use ironweave_btl::Peer;
use ironweave_ffi::ofi::{Info, Ofi as Library, OfiError, Standing, standing};
use std::time::Duration;

/// How libfabric is used.
#[derive(Clone, Debug)]
pub struct OfiConfig {
    /// Who this process is.
    pub me: Peer,
    /// The job secret.
    pub secret: [u8; 32],
    /// The job's name.
    pub job: String,
    /// The library, by soname or path; `None`: `IRONWEAVE_OFI_LIB`, or libfabric.so.1.
    pub library: Option<String>,
    /// Providers to choose from, by name (`tcp;ofi_rxm`) or first part of it (`tcp`), in order of preference; empty:
    /// those that are taken by default.
    pub include: Vec<String>,
    /// Providers never to take.
    pub exclude: Vec<String>,
    /// Also those that were seen to break (see [`standing`]), where `include` names them.
    pub refused_too: bool,
    /// Domains (`mlx5_0`, `eth0`) or fabrics (`127.0.0.1/32`) to use; empty: all, loopback only when there is no other.
    pub domains: Vec<String>,
    /// The address of the first rail's endpoint, in the provider's format (see [`endpoint_name`](crate::endpoint_name)), for a
    /// process that is to be found where an earlier one was; `None`: the provider chooses.
    pub address: Option<Vec<u8>>,
    /// At most so many domains become rails.
    pub rails: usize,
    /// Longest payload of one frame, in bytes.
    pub eager: usize,
    /// How many bytes may be on their way to one peer that has not read them.
    pub window: usize,
    /// About how many peers there will be.
    pub peers: usize,
    /// How long a connection may take to be made.
    pub connect_timeout: Duration,
    /// How long nothing may get through to a peer that something is sent to, before it becomes a suspect; zero: for ever.
    pub peer_timeout: Duration,
    /// How long a process that has finalized waits for its peers to see it.
    pub linger: Duration,
    /// [`Btl::arm`](ironweave_btl::Btl::arm) gives a descriptor; costs a little on each message with some providers.
    pub waitable: bool,
    /// Reads of more than 2 KiB begin with a short one wherever memory lies and whatever the processor is like (`ahead`), for tests.
    pub heads: bool,
}

impl Default for OfiConfig {
    fn default() -> Self {
        OfiConfig {
            me: Peer(0),
            secret: [0; 32],
            job: String::new(),
            library: None,
            include: Vec::new(),
            exclude: Vec::new(),
            refused_too: false,
            domains: Vec::new(),
            address: None,
            rails: 4,
            eager: 64 << 10,
            window: 1 << 20,
            peers: 64,
            connect_timeout: Duration::from_secs(30),
            peer_timeout: Duration::from_secs(300),
            linger: Duration::from_secs(1),
            waitable: false,
            heads: false,
        }
    }
}

/// No rail could be opened: why, in words for people.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The library, or a call of it.
    #[error("ofi: {0}")]
    Library(#[from] OfiError),
    /// A call for one provider.
    #[error("ofi: {provider} on {domain}: {error}")]
    Provider {
        /// Which provider.
        provider: String,
        /// On what.
        domain: String,
        /// What it says.
        error: OfiError,
    },
    /// Nothing is left after `include`, `exclude` and `domains`.
    #[error(
        "ofi: no provider is left of {offered} (include {include:?}, exclude {exclude:?}, domains {domains:?})"
    )]
    Nothing {
        /// What the library offers.
        offered: String,
        /// Of the configuration.
        include: Vec<String>,
        /// Of the configuration.
        exclude: Vec<String>,
        /// Of the configuration.
        domains: Vec<String>,
    },
    /// All that is left is known to break.
    #[error("ofi: {provider} is refused: {why} (btl_ofi_refused_too takes it all the same)")]
    Refused {
        /// Which provider.
        provider: String,
        /// What was seen.
        why: &'static str,
    },
    /// The kernel has no randomness to give.
    #[error("ofi: getrandom: {0}")]
    Random(rustix::io::Errno),
    /// A frame size that cannot work.
    #[error("ofi: btl_ofi_frame_size is {0} bytes; it can be 1k to 8M")]
    FrameSize(usize),
    /// A window in which two frames have no room.
    #[error(
        "ofi: btl_ofi_window is {is} bytes; two frames of btl_ofi_frame_size ({frame} bytes) need {least}"
    )]
    Window {
        /// Bytes that were asked for.
        is: usize,
        /// Bytes that would do.
        least: usize,
        /// Bytes of a frame.
        frame: usize,
    },
    /// An endpoint's address that is too long to be exchanged, in bytes.
    #[error("ofi: the endpoint's address has {0} bytes, which is too long to be exchanged")]
    Name(usize),
}

/// The domains that become rails: all of one provider, the best that is left.
pub(crate) fn choose(
    library: &'static Library,
    config: &OfiConfig,
) -> Result<Vec<Info>, OpenError> {
    let mut offers = Vec::new();
    if config.include.is_empty() {
        offers = library.offers("")?;
    } else {
        for name in &config.include {
            // libfabric's own filter knows `tcp` for `tcp;ofi_rxm`, and where it does not, ours decides.
            offers.extend(library.offers(name)?);
        }
    }
    let Sifted { ways, offered, refused } = sift(offers, config);
    if let (true, Some((provider, why))) = (ways.is_empty(), refused) {
        return Err(OpenError::Refused { provider, why });
    }
    if ways.is_empty() {
        return Err(OpenError::Nothing {
            offered,
            include: config.include.clone(),
            exclude: config.exclude.clone(),
            domains: config.domains.clone(),
        });
    }
    Ok(ways)
}

fn named(list: &[String], provider: &str) -> bool {
    let core = provider.split(';').next().unwrap_or(provider);
    list.iter().any(|name| name == provider || name == core)
}

/// What is left of a library's offers.
struct Sifted {
    ways: Vec<Info>,
    /// The names of all.
    offered: String,
    /// One that was asked for and is refused, and why.
    refused: Option<(String, &'static str)>,
}

fn sift(offers: Vec<Info>, config: &OfiConfig) -> Sifted {
    let mut refused = None;
    let mut names: Vec<String> = offers.iter().map(Info::provider).collect();
    names.dedup();
    let offered = if names.is_empty() { String::from("nothing") } else { names.join(", ") };
    let mut ways: Vec<Info> = Vec::new();
    for info in offers {
        let provider = info.provider();
        let standing = standing(&provider);
        let wanted = match config.include.is_empty() {
            true => standing == Standing::Default,
            false => named(&config.include, &provider),
        };
        if !wanted || named(&config.exclude, &provider) {
            continue;
        }
        if let (Standing::Refused(why), false) = (standing, config.refused_too) {
            refused.get_or_insert((provider, why));
            continue;
        }
        let here = |name: &String| *name == info.domain() || *name == info.fabric();
        if !config.domains.is_empty() && !config.domains.iter().any(here) {
            continue;
        }
        ways.push(info);
    }
    let Some(provider) = ways.first().map(Info::provider) else {
        return Sifted { ways, offered, refused };
    };
    ways.retain(|way| way.provider() == provider);
    // One rail for each domain: IPv4 before IPv6 (link-local addresses do not reach far), then as they come. Other addresses
    // last: verbs' first offer for a RoCE device is its GID, by which it is not to be had then (1.17: FI_ENODATA).
    ways.sort_by_key(|way| way.ip_version().unwrap_or(u8::MAX));
    let mut seen: Vec<String> = Vec::new();
    ways.retain(|way| {
        let new = !seen.contains(&way.domain());
        seen.push(way.domain());
        new
    });
    let loopback = |way: &Info| way.domain() == "lo" || way.fabric().starts_with("127.");
    if config.domains.is_empty() && ways.iter().any(|way| !loopback(way)) {
        ways.retain(|way| !loopback(way));
    }
    ways.truncate(config.rails.max(1));
    Sifted { ways, offered, refused }
}
