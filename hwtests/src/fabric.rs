//! The fabric that device tests run on: which RDMA devices belong to which host, and, in the virtual machine, the wires
//! between them, to be cut, slowed and made lossy.

use std::process::Command;

/// Names the devices of each host: `rxe00,rxe01:rxe10,rxe11`. Set in the virtual machine, and by `iw-hwtest`.
pub const HOSTS: &str = "IRONWEAVE_VERBS_HOSTS";
/// Set inside the virtual machine.
pub const VM: &str = "IRONWEAVE_VM";
/// The test binaries of the run, with colons between them. Set inside the virtual machine.
pub const TESTS: &str = "IRONWEAVE_TESTS";
/// Set where the devices are known to page memory on demand: what wants that must not be skipped.
pub const PAGING: &str = "IRONWEAVE_VERBS_PAGING";

/// Whether an entry of a GID table is an IPv4 address. All of it is looked at: a link-local address whose hardware address has 0xff for its third
/// byte has the same two bytes before its last four.
#[must_use]
pub fn is_ipv4(gid: &[u8; 16]) -> bool {
    std::net::Ipv6Addr::from(*gid).to_ipv4_mapped().is_some()
}

/// The RDMA devices of two hosts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fabric {
    /// For each host, its devices: one for each rail.
    pub hosts: Vec<Vec<String>>,
}

impl Fabric {
    /// The fabric that this process was given; `None` where nobody gave one.
    #[must_use]
    pub fn given() -> Option<Fabric> {
        std::env::var(HOSTS).ok().and_then(|text| Fabric::parse(&text))
    }

    fn parse(text: &str) -> Option<Fabric> {
        let hosts: Vec<Vec<String>> = text
            .split(':')
            .map(|host| {
                host.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect()
            })
            .collect();
        let complete = hosts.iter().all(|host: &Vec<String>| !host.is_empty());
        complete.then_some(Fabric { hosts })
    }

    /// The device of `host` on `rail`; hosts and rails beyond the last begin again.
    #[must_use]
    pub fn device(&self, host: usize, rail: usize) -> &str {
        let devices = &self.hosts[host % self.hosts.len()];
        &devices[rail % devices.len()]
    }
}

impl Fabric {
    /// Whether the devices are iWARP's: their connections are TCP's, so that they know no partitions, no datagrams and no
    /// repeated requests.
    #[must_use]
    pub fn is_iwarp(&self) -> bool {
        let path = format!("/sys/class/infiniband/{}/node_type", self.device(0, 0));
        std::fs::read_to_string(path).is_ok_and(|text| text.starts_with('4'))
    }
}

/// One end of a wire of the virtual machine. What a test did to it is undone when this is dropped.
#[derive(Debug)]
pub struct Wire {
    interface: String,
    host: usize,
    rail: usize,
    down: bool,
    mute: bool,
    shaped: bool,
}

impl Wire {
    /// The end at `host` of the wire of `rail`; `None` outside of the virtual machine.
    #[must_use]
    pub fn of(host: usize, rail: usize) -> Option<Wire> {
        std::env::var_os(VM)?;
        let interface = format!("h{host}r{rail}");
        Some(Wire { interface, host, rail, down: false, mute: false, shaped: false })
    }

    /// Takes the link down at this end.
    ///
    /// # Panics
    /// When `ip` fails, as all that follows; a test cannot go on then.
    pub fn down(&mut self) {
        run("ip", &["link", "set", &self.interface, "down"]);
        self.down = true;
    }

    /// Brings it up again, with the routes that the kernel dropped with it.
    pub fn up(&mut self) {
        run("ip", &["link", "set", &self.interface, "up"]);
        let (host, rail) = (self.host, self.rail);
        let other = 1 - host;
        for (family, net, width) in
            [("-4", format!("10.77.{rail}."), 32), ("-6", format!("fd77:{rail}::"), 128)]
        {
            let (to, from) = (format!("{net}{}", other + 1), format!("{net}{}", host + 1));
            let route = format!("{to}/{width}");
            let device = ["dev", &self.interface];
            let table = ["table", "100"];
            run(
                "ip",
                &[&[family, "route", "replace", &route], &device[..], &["src", &from], &table]
                    .concat(),
            );
            let peer = format!("/sys/class/net/h{other}r{rail}/address");
            let mac =
                std::fs::read_to_string(peer).expect("the other end of the wire has an address");
            let neighbour = [family, "neigh", "replace", &to, "lladdr", mac.trim()];
            run("ip", &[&neighbour[..], &device, &["nud", "permanent"]].concat());
        }
        self.down = false;
    }

    /// Has this end find nobody at the other one by IPv4: no neighbour is known, and who is asked for does not answer. IPv6
    /// goes on. Dropping the wire ends it.
    pub fn without_ipv4(&mut self) {
        self.mute = true;
        self.answer_arp(false);
        let to = format!("10.77.{}.{}", self.rail, 2 - self.host);
        run("ip", &["neigh", "del", &to, "dev", &self.interface]);
    }

    /// Whether the other end answers who asks for its IPv4 addresses.
    fn answer_arp(&self, answer: bool) {
        let path = format!("/proc/sys/net/ipv4/conf/h{}r{}/arp_ignore", 1 - self.host, self.rail);
        let value = if answer { "1" } else { "8" };
        std::fs::write(path, value).expect("the interface has settings");
    }

    /// Shapes what this end sends, in the words of `tc netem`: `loss 5%`, `delay 1ms 300us`, `delay 10ms reorder 25%`.
    pub fn netem(&mut self, words: &str) {
        let shape: Vec<&str> = words.split_whitespace().collect();
        let place = ["qdisc", "replace", "dev", &self.interface, "root", "netem"];
        run("tc", &[&place[..], &shape].concat());
        self.shaped = true;
    }

    /// Ends what [`netem`](Wire::netem) began.
    pub fn clean(&mut self) {
        run("tc", &["qdisc", "del", "dev", &self.interface, "root"]);
        self.shaped = false;
    }

    /// Packets that this end has sent.
    #[must_use]
    pub fn sent(&self) -> u64 {
        let path = format!("/sys/class/net/{}/statistics/tx_packets", self.interface);
        let text = std::fs::read_to_string(path).expect("the kernel counts packets");
        text.trim().parse().expect("the count is a number")
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        if self.shaped {
            self.clean();
        }
        if self.mute {
            self.answer_arp(true);
        }
        if self.down || self.mute {
            self.up();
        }
    }
}

fn run(program: &str, arguments: &[&str]) {
    let output = Command::new(program).args(arguments).output();
    match output {
        Ok(output) if output.status.success() => {}
        Ok(output) => panic!(
            "{program} {}: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        ),
        Err(error) => panic!("{program}: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_ipv4_count_as_such() {
        let gid = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
        assert!(is_ipv4(&gid("::ffff:10.77.0.1")));
        // A link-local one that was taken for one: the hardware address was 16:e8:ff:b3:c2:93.
        for other in ["fe80::14e8:ffff:feb3:c293", "fd77::1", "::"] {
            assert!(!is_ipv4(&gid(other)), "{other}");
        }
    }

    #[test]
    fn hosts_and_rails_are_named_and_begin_again() {
        let fabric = Fabric::parse("rxe00,rxe01:rxe10,rxe11").unwrap();
        assert_eq!(fabric.device(1, 0), "rxe10");
        assert_eq!(fabric.device(2, 3), "rxe01");
        let one = Fabric::parse("mlx5_0").unwrap();
        assert_eq!(one.device(5, 5), "mlx5_0");
        assert_eq!(Fabric::parse("a:"), None);
        assert_eq!(Fabric::parse(""), None);
    }
}
