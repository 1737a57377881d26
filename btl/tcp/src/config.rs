//! What the owner says about TCP, and what can be wrong with it.

use ipnet::IpNet;
use ironweave_btl::Peer;
use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::time::Duration;

/// Names interfaces, or the addresses on them: `eth0`, `10.1.0.0/16`, `fd00::/8`, `192.0.2.7`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Selector {
    /// The interface of this name.
    Name(String),
    /// Addresses in this network.
    Net(IpNet),
}

/// Neither an interface name nor a network.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("`{0}` is neither an interface name nor a network in CIDR notation")]
pub struct SelectorError(String);

impl FromStr for Selector {
    type Err = SelectorError;

    fn from_str(text: &str) -> Result<Self, SelectorError> {
        if let Ok(net) = text.parse() {
            return Ok(Selector::Net(net));
        }
        if let Ok(address) = text.parse::<IpAddr>() {
            return Ok(Selector::Net(address.into()));
        }
        // Names are at most 15 bytes, without `/` and white space (kernel, dev_valid_name).
        if text.is_empty() || text.len() > 15 || text.contains(['/', ' ', '\t', ',']) {
            return Err(SelectorError(text.to_owned()));
        }
        Ok(Selector::Name(text.to_owned()))
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Selector::Name(name) => f.write_str(name),
            Selector::Net(net) => net.fmt(f),
        }
    }
}

/// How the TCP rails of a process are opened. `Default` has a null identity and secret: set at least
/// `me`, `secret` and `job`.
#[derive(Clone)]
pub struct TcpConfig {
    /// This process.
    pub me: Peer,
    /// The secret of the job, which every connection proves both ways.
    pub secret: [u8; 32],
    /// The name of the job, bound into the proofs.
    pub job: String,
    /// Use only these interfaces and addresses; empty means all (without loopback, if there is another).
    pub include: Vec<Selector>,
    /// Never use these; stronger than `include`.
    pub exclude: Vec<Selector>,
    /// Use loopback also beside other interfaces, without its being included by name.
    pub loopback: bool,
    /// Rails per interface, at least 1: each has a listener and connections of its own.
    pub links: u16,
    /// Ports to listen on; `None` lets the kernel choose.
    pub ports: Option<RangeInclusive<u16>>,
    /// How long a connection may take until it is up.
    pub connect_timeout: Duration,
    /// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`) before the endpoint is lost.
    pub user_timeout: Duration,
    /// Silence before the first keepalive probe.
    pub keepalive_idle: Duration,
    /// Time between probes.
    pub keepalive_interval: Duration,
    /// Unanswered probes before the endpoint is lost.
    pub keepalive_count: u32,
    /// `SO_SNDBUF` in bytes; `None` leaves the kernel to tune it, but between processes of one host, where it is bounded.
    pub sndbuf: Option<usize>,
    /// `SO_RCVBUF` in bytes; `None` leaves the kernel to tune it, but between processes of one host, where it is bounded.
    pub rcvbuf: Option<usize>,
    /// Bytes of copied frames that may wait in the queue of one endpoint.
    pub queue: usize,
}

impl Default for TcpConfig {
    fn default() -> Self {
        TcpConfig {
            me: Peer(0),
            secret: [0; 32],
            job: String::new(),
            include: Vec::new(),
            exclude: Vec::new(),
            loopback: false,
            links: 1,
            ports: None,
            connect_timeout: Duration::from_secs(10),
            user_timeout: Duration::from_secs(10),
            keepalive_idle: Duration::from_secs(5),
            keepalive_interval: Duration::from_secs(1),
            keepalive_count: 5,
            sndbuf: None,
            rcvbuf: None,
            queue: 512 << 10,
        }
    }
}

impl fmt::Debug for TcpConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TcpConfig")
            .field("me", &self.me)
            .field("job", &self.job)
            .field("include", &self.include)
            .field("exclude", &self.exclude)
            .field("links", &self.links)
            .field("ports", &self.ports)
            .finish_non_exhaustive() // never the secret
    }
}

/// TCP could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// `include` or `exclude` names an interface that is not there.
    #[error("unknown interface `{name}` (known: {known})")]
    UnknownInterface {
        /// The name.
        name: String,
        /// Those that are there.
        known: String,
    },
    /// Nothing is left after `include` and `exclude`.
    #[error("no usable network interface after include and exclude (known: {known})")]
    NoInterface {
        /// Those that are there, with their addresses.
        known: String,
    },
    /// All ports of the range are in use.
    #[error("no free port in {first}-{last} on {address} (each is in use)")]
    PortsInUse {
        /// Where.
        address: IpAddr,
        /// First of the range.
        first: u16,
        /// Last of the range.
        last: u16,
    },
    /// `links` is 0.
    #[error("at least one link per interface is needed")]
    NoLinks,
    /// The operating system refused.
    #[error("{call}: {source}")]
    Os {
        /// Which call.
        call: &'static str,
        /// Why.
        source: std::io::Error,
    },
}

impl OpenError {
    /// The address went away between being listed and being used, or (IPv6, while it is checked for duplicates) is not
    /// there yet.
    pub(crate) fn is_passing(&self) -> bool {
        let OpenError::Os { source, .. } = self else { return false };
        let errno = source.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        matches!(errno, Some(rustix::io::Errno::ADDRNOTAVAIL | rustix::io::Errno::NODEV))
    }

    pub(crate) fn os(call: &'static str, errno: impl Into<std::io::Error>) -> Self {
        OpenError::Os { call, source: errno.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_names_addresses_or_networks() {
        assert_eq!("eth0".parse(), Ok(Selector::Name("eth0".into())));
        assert_eq!(
            "10.1.0.0/16".parse::<Selector>().expect("a network").to_string(),
            "10.1.0.0/16"
        );
        assert_eq!("::1".parse::<Selector>().expect("an address").to_string(), "::1/128");
        for bad in ["", "10.1.0.0/99", "a name", "averyveryverylongname"] {
            bad.parse::<Selector>().unwrap_err();
        }
    }

    #[test]
    fn the_secret_is_not_printed() {
        let config = TcpConfig { secret: [0xab; 32], ..TcpConfig::default() };
        assert!(!format!("{config:?}").contains("171"));
    }
}
