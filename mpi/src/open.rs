//! Opens the transports that the parameters select, and decides how a process waits.

use crate::rails::{Net, Rail};
use crate::{Error, Result};
use ironweave_btl::{Loopback, Peer};
use ironweave_btl_ofi::{Ofi, OfiConfig};
use ironweave_btl_shm::{Shm, ShmConfig, SingleCopy};
use ironweave_btl_tcp::{Selector, SelectorError, Tcp, TcpConfig};
use ironweave_btl_uct::{Uct, UctConfig};
use ironweave_btl_verbs::{Ip, OnDemand, Ring, Timers, Verbs, VerbsConfig};
use ironweave_ft::PlaneConfig;
use ironweave_pml::ob1::{Config, Ob1};
use ironweave_rte::Job;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The PML of this process over the selected rails.
pub(crate) fn pml(job: &Job) -> Result<Ob1<Rail>> {
    let params = job.params();
    let me = Peer(job.rank());
    let mut config = Config::new(me);
    config.eager_limit = match params.number("pml_ob1_eager_limit") {
        0 => None,
        limit => Some(usize::try_from(limit).unwrap_or(usize::MAX)),
    };
    let kept = params.number("pml_ob1_unexpected_limit");
    config.unexpected_bytes = usize::try_from(kept).unwrap_or(usize::MAX);
    let mut pml = Ob1::new(config);
    let selected = params.selection("btl");
    if selected.allows("self") {
        pml.add_btl(Rail::Loopback(Box::new(Loopback::new(me))));
    }
    if selected.allows("shm") && job.local_ranks().nth(1).is_some() {
        pml.add_btl(Rail::Shm(Box::new(shm(job)?)));
    }
    if selected.allows("verbs") && job.size() > 1 {
        for rail in verbs(job)? {
            pml.add_btl(Rail::Net(Box::new(Net::Verbs(rail))));
        }
    }
    if selected.names("ofi") && job.size() > 1 {
        match ofi(job) {
            Ok(rails) => {
                rails.into_iter().for_each(|rail| {
                    pml.add_btl(Rail::Net(Box::new(Net::Ofi(rail))));
                });
            }
            // tcp reaches whom it would have reached.
            Err(error) if selected.allows("tcp") => tracing::warn!(%error, "going on without ofi"),
            Err(error) => return Err(error),
        }
    }
    if selected.names("uct") && job.size() > 1 {
        match uct(job) {
            Ok(rails) => {
                rails.into_iter().for_each(|rail| {
                    pml.add_btl(Rail::Net(Box::new(Net::Uct(rail))));
                });
            }
            Err(error) if selected.allows("tcp") => tracing::warn!(%error, "going on without uct"),
            Err(error) => return Err(error),
        }
    }
    if selected.allows("tcp") && job.size() > 1 {
        for rail in tcp(job)? {
            pml.add_btl(Rail::Net(Box::new(Net::Tcp(rail))));
        }
    }
    Ok(pml)
}

/// What the core over that PML needs to know.
pub(crate) fn core(job: &Job) -> Result<ironweave_core::Config> {
    let mut collectives = ironweave_coll::Config::default();
    for &collective in ironweave_coll::Config::COLLECTIVES {
        let algorithm = job.params().text(&format!("coll_{collective}_algorithm"));
        collectives.set(collective, algorithm)?;
    }
    match job.params().number("coll_segment_size") {
        0 => {}
        bytes => collectives.segment = bytes as usize,
    }
    let hosts: Option<Vec<u32>> = (0..job.size()).map(|rank| job.host_index(rank)).collect();
    Ok(ironweave_core::Config {
        me: Peer(job.rank()),
        size: job.size(),
        collectives: Arc::new(collectives),
        // Our launcher ends whoever is accused before it says that it failed; else it says so when the process runs nothing of its
        // program any more (`ironweave_rte::lifeline`), or has ended.
        plane: PlaneConfig { fail_stop: job.liveness().is_kept(), ..PlaneConfig::default() },
        board: job.board(),
        hosts: hosts.map(Arc::from),
    })
}

fn shm(job: &Job) -> Result<Shm> {
    let params = job.params();
    let mut config = ShmConfig::new(Peer(job.rank()), job.id(), job.secret());
    config.ring_bytes = params.number("btl_shm_ring_size") as usize;
    config.single_copy = match params.text("btl_shm_single_copy") {
        "cma" => SingleCopy::Cma,
        "none" => SingleCopy::None,
        _ => job.single_copy().unwrap_or_default(),
    };
    if ranks_per_core(job) > 1 {
        config.oversubscribe();
    }
    Shm::open(config).map_err(|error| Error::Transport(error.to_string()))
}

/// The RDMA ports; none where there are none, which is an error only when nothing else carries messages between hosts, or
/// when a device was asked for by name.
fn verbs(job: &Job) -> Result<Vec<Verbs>> {
    let params = job.params();
    let include = params.list("btl_verbs_include");
    let selected = params.selection("btl");
    let needed = !include.is_empty() || selected.names("verbs") && !selected.allows("tcp");
    if !needed && !Path::new("/sys/class/infiniband").exists() {
        return Ok(Vec::new());
    }
    let small = |name: &str| params.number(name) as u8; // the table keeps them below 256
    let credits = params.number("btl_verbs_credits") as u32;
    let config = VerbsConfig {
        me: Peer(job.rank()),
        secret: job.secret(),
        job: job.id().to_owned(),
        include: include.to_vec(),
        exclude: params.list("btl_verbs_exclude").to_vec(),
        gid_index: Some(small("btl_verbs_gid_index")).filter(|&index| index != 255),
        ip: match params.text("btl_verbs_ip") {
            "ipv4" => Ip::V4,
            "ipv6" => Ip::V6,
            _ => Ip::Any,
        },
        pkey_index: params.number("btl_verbs_pkey_index") as u16,
        service_level: small("btl_verbs_service_level"),
        traffic_class: small("btl_verbs_traffic_class"),
        mtu: match params.text("btl_verbs_mtu") {
            "256" => 1,
            "512" => 2,
            "1024" => 3,
            "2048" => 4,
            _ => 5,
        },
        timers: Timers {
            timeout: small("btl_verbs_timeout"),
            retries: small("btl_verbs_retry_count"),
            busy_retries: small("btl_verbs_rnr_retry"),
            ..VerbsConfig::default().timers
        },
        connect_timeout: params.duration("btl_verbs_connect_timeout"),
        stall_timeout: params.duration("btl_verbs_stall_timeout"),
        link_timeout: params.duration("btl_verbs_link_timeout"),
        probe: params.duration("btl_verbs_probe"),
        buffer: (params.number("btl_verbs_buffer_size") as usize).clamp(2 << 10, 1 << 20),
        credits,
        kept: params.number("btl_verbs_kept") as usize,
        on_demand: match params.text("btl_verbs_on_demand") {
            "always" => OnDemand::Always,
            "never" => OnDemand::Never,
            _ => OnDemand::Auto,
        },
        ring: match params.text("btl_verbs_ring") {
            "on" => Ring::On,
            "off" => Ring::Off,
            _ => Ring::Auto,
        },
        ring_after: params.number("btl_verbs_ring_after") as u32,
        ring_peers: params.number("btl_verbs_ring_peers") as u32,
        ring_slots: params.number("btl_verbs_ring_slots") as u32,
        ring_size: params.number("btl_verbs_ring_size") as usize,
        // Memory is taken as peers come.
        receives_max: job.size().saturating_mul(credits + 4).clamp(8 << 10, 64 << 10),
        completions: job.size().saturating_mul(32).clamp(16 << 10, 256 << 10),
        ..VerbsConfig::default()
    };
    match Verbs::open_all(config) {
        Ok(rails) => Ok(rails),
        Err(error) if needed => Err(Error::Transport(format!("verbs: {error}"))),
        Err(error) => {
            tracing::debug!(%error, "verbs is left out");
            Ok(Vec::new())
        }
    }
}

fn tcp(job: &Job) -> Result<Vec<Tcp>> {
    Tcp::open_all(tcp_config(job)?).map_err(|error| Error::Transport(error.to_string()))
}

/// How tcp is opened; the detector's socket is reached over the same interfaces.
pub(crate) fn tcp_config(job: &Job) -> Result<TcpConfig> {
    let params = job.params();
    let selectors = |name: &str| -> Result<Vec<Selector>> {
        let wrong = |error: SelectorError| Error::Rte(format!("{name}: {error}"));
        params.list(name).iter().map(|text| text.parse().map_err(wrong)).collect()
    };
    let size = |name: &str| match params.number(name) {
        0 => None,
        bytes => Some(bytes as usize),
    };
    Ok(TcpConfig {
        me: Peer(job.rank()),
        secret: job.secret(),
        job: job.id().to_owned(),
        include: selectors("btl_tcp_if_include")?,
        exclude: selectors("btl_tcp_if_exclude")?,
        links: params.number("btl_tcp_links") as u16,
        connect_timeout: params.duration("btl_tcp_connect_timeout"),
        user_timeout: params.duration("btl_tcp_user_timeout"),
        keepalive_idle: params.duration("btl_tcp_keepalive"),
        sndbuf: size("btl_tcp_sndbuf"),
        rcvbuf: size("btl_tcp_rcvbuf"),
        ..TcpConfig::default()
    })
}

fn ofi(job: &Job) -> Result<Vec<Ofi>> {
    let params = job.params();
    let config = OfiConfig {
        me: Peer(job.rank()),
        secret: job.secret(),
        job: job.id().to_owned(),
        include: params.list("btl_ofi_provider_include").to_vec(),
        exclude: params.list("btl_ofi_provider_exclude").to_vec(),
        refused_too: params.flag("btl_ofi_refused_too"),
        domains: params.list("btl_ofi_domain_include").to_vec(),
        rails: params.number("btl_ofi_rails") as usize,
        eager: params.number("btl_ofi_frame_size") as usize,
        window: params.number("btl_ofi_window") as usize,
        peers: job.size() as usize,
        connect_timeout: params.duration("btl_ofi_connect_timeout"),
        peer_timeout: params.duration("btl_ofi_peer_timeout"),
        ..OfiConfig::default()
    };
    Ofi::open_all(&config).map_err(|error| Error::Transport(error.to_string()))
}

fn uct(job: &Job) -> Result<Vec<Uct>> {
    let params = job.params();
    let config = UctConfig {
        me: Peer(job.rank()),
        secret: job.secret(),
        job: job.id().to_owned(),
        transports: params.list("btl_uct_transports").to_vec(),
        devices: params.list("btl_uct_devices").to_vec(),
        rails: params.number("btl_uct_rails") as usize,
        frame: params.number("btl_uct_frame_size") as usize,
        connect_timeout: params.duration("btl_uct_connect_timeout"),
        peer_timeout: params.duration("btl_uct_peer_timeout"),
        check: params.duration("btl_uct_check"),
        ..UctConfig::default()
    };
    Uct::open_all(&config).map_err(|error| Error::Transport(error.to_string()))
}

/// How many ranks of this host there are for each core that they share, rounded up.
fn ranks_per_core(job: &Job) -> usize {
    job.local_ranks().count().div_ceil(job.cores())
}

/// How many cores of this host each of its ranks has for itself, rounded down, one at least.
pub(crate) fn cores(job: &Job) -> u32 {
    (job.cores() / job.local_ranks().count().max(1)).max(1) as u32
}

/// Polls in vain before a process with a core of its own offers it to others: a courtesy to whoever else runs here.
pub(crate) const COURTEOUS: u32 = 20_000;

/// Polls in vain before a waiting process offers its core to others. With fewer cores than ranks the message may be waiting for this
/// very core.
pub(crate) fn spin(job: &Job) -> u32 {
    if ranks_per_core(job) > 1 { 1 } else { COURTEOUS }
}

/// After how long a wait in vain tells on stderr what it waits for: `IRONWEAVE_WATCHDOG`, in seconds.
pub(crate) fn watchdog() -> Option<Duration> {
    let seconds = std::env::var("IRONWEAVE_WATCHDOG").ok()?;
    seconds.parse().ok().map(Duration::from_secs_f64)
}

#[cfg(test)]
mod tests {
    use ironweave_rte::params::Kind;
    use ironweave_rte::params::table::TABLE;

    /// What users are told they may choose is what there is to choose.
    #[test]
    fn parameters_name_the_algorithms_that_exist() {
        let mut config = ironweave_coll::Config::default();
        for collective in ironweave_coll::Config::COLLECTIVES {
            let name = format!("coll_{collective}_algorithm");
            let row = TABLE.iter().find(|row| row.name == name).expect(&name);
            let Kind::Choice(algorithms) = row.kind else { panic!("{name} is a choice") };
            for algorithm in algorithms {
                config.set(collective, algorithm).expect(&name);
            }
            let error = config.set(collective, "nonsense").expect_err(&name).to_string();
            assert!(algorithms.iter().all(|algorithm| error.contains(algorithm)), "{error}");
        }
    }
}
