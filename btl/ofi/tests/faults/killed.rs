//! A peer that is killed in the middle of reads both ways: a process of its own, by SIGKILL.

use super::*;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Names the file where a child says where it is; set in children alone.
const PLACE: &str = "IRONWEAVE_OFI_KILLED";

/// A process that is killed, at the latest when its parent is done with it.
struct Victim {
    process: Child,
    place: PathBuf,
}

impl Victim {
    fn start(test: &str, way: &str, round: u32) -> Victim {
        let name = format!("iw-ofi-{}-{way}-{round}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let program = std::env::current_exe().expect("this test binary");
        let process = Command::new(program)
            .args([&format!("killed::{test}"), "--exact", "--nocapture"])
            .env(PLACE, &place)
            .env("IRONWEAVE_OFI_WAY", way)
            .env("IRONWEAVE_OFI_JOB", std::process::id().to_string())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Victim { process, place }
    }

    /// Its address, when it has told.
    fn told(&self) -> Option<Address> {
        let text = std::fs::read_to_string(&self.place).ok()?;
        Some(Address { component: "ofi".into(), rail: 0, bytes: unhex(&text) })
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.place);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len() / 2).map(|i| digits(2 * i)).collect()
}

/// Lends memory to the peer, and sends it the key.
fn lend(node: &mut Node, peer: Peer, source: &OwnedBuffer) -> RemoteKey {
    // SAFETY: callers keep the buffer until the key is deregistered, or the process ends.
    let key = node.btl.register_source(peer, &unsafe { source.send_region() }).expect("memory");
    node.btl.send_short(peer, b"key", key.as_bytes()).expect("room for one frame");
    key
}

/// The key that the peer has sent.
fn lent(node: &Node) -> Option<RemoteKey> {
    node.seen.frames.first().and_then(|frame| RemoteKey::new(frame))
}

/// The child: lends memory, and reads the parent's over and over, until it is killed.
fn be_killed(place: &Path) -> ! {
    let variable = |name: &str| std::env::var(name).expect("set by the parent");
    let (name, job) = (variable("IRONWEAVE_OFI_WAY"), variable("IRONWEAVE_OFI_JOB"));
    let way = WAYS.into_iter().find(|way| way.0 == name).expect("one of ours");
    let open = |config: &mut OfiConfig| config.job = format!("faults-{job}");
    let mut node = Node::open_with("killed", way, 1, open).expect("the parent has one too");
    let (source, target) = (OwnedBuffer::from(vec![0xA5; LONG]), OwnedBuffer::zeroed(LONG));
    let unfinished = place.with_extension("new");
    std::fs::write(&unfinished, hex(&node.btl.address().bytes))
        .and_then(|()| std::fs::rename(&unfinished, place))
        .expect("a file");
    let (start, mut begun, mut has_lent) = (Instant::now(), 0, false);
    while start.elapsed() < WATCHDOG {
        node.turn();
        if node.btl.state(Peer(0)) != EndpointState::Up {
            continue;
        }
        if !std::mem::replace(&mut has_lent, true) {
            lend(&mut node, Peer(0), &source);
        }
        if let (Some(theirs), true) = (lent(&node), node.seen.rma.len() == begun) {
            begun += 1;
            node.read(Peer(0), theirs, &target);
        }
    }
    std::process::exit(1);
}

#[test]
fn a_peer_killed_in_the_middle_of_reads_leaves_the_buffer_alone() {
    let test = "a_peer_killed_in_the_middle_of_reads_leaves_the_buffer_alone";
    if let Some(place) = std::env::var_os(PLACE) {
        be_killed(Path::new(&place));
    }
    each(test, |way| {
        let Some(mut node) = Node::open(test, way, 0) else { return };
        if !node.btl.caps().get {
            return; // nothing is read over it
        }
        let mut cut = 0;
        for round in 0..4 {
            // They are gone before the rail is.
            let source = OwnedBuffer::from(vec![0x5A; LONG]);
            let mut target = OwnedBuffer::zeroed(LONG);
            let mut victim = Victim::start(test, way.0, round);
            until("the child to open its rail", || victim.told().is_some());
            let address = victim.told().expect("just seen");
            node.seen = Record::default();
            node.btl.connect(Peer(1), &address).expect("the address is reachable");
            until("the child to be up", || {
                node.turn();
                node.seen.up == 1
            });
            let key = lend(&mut node, Peer(1), &source);
            until("the child's key", || {
                node.turn();
                lent(&node).is_some()
            });
            let theirs = lent(&node).expect("just seen");
            // Whole reads first, so that each side knows the other's lane.
            for whole in 1..=2 {
                node.read(Peer(1), theirs, &target);
                until("a whole read", || {
                    node.turn();
                    node.seen.rma.len() == whole
                });
                assert_eq!(node.seen.rma[whole - 1], Ok(()));
                assert!(target.as_slice().iter().all(|&byte| byte == 0xA5), "a part");
            }
            node.seen.rma.clear();
            target.as_mut_slice().fill(0);
            node.read(Peer(1), theirs, &target);
            for _ in 0..round * 120 {
                node.turn();
            }
            victim.process.kill().expect("it runs");
            victim.process.wait().expect("it ends");
            for _ in 0..round * 50 {
                node.turn();
            }
            // What the launcher or the detector would do, if the provider did not show it.
            node.btl.invalidate(Peer(1), Residue::Discard, &mut node.seen);
            until("the end", || {
                node.turn();
                node.seen.closed == 1 && node.seen.rma.len() == 1
            });
            match &node.seen.rma[0] {
                Ok(()) => assert!(target.as_slice().iter().all(|&byte| byte == 0xA5), "a part"),
                Err(_) => cut += 1,
            }
            target.as_mut_slice().fill(0x11);
            node.btl.deregister(&key);
            drop(source);
            let end = Instant::now() + Duration::from_millis(30);
            while Instant::now() < end {
                node.turn();
            }
            let untouched = target.as_slice().iter().all(|&byte| byte == 0x11);
            assert!(untouched, "{}: written after it came back", way.0);
        }
        assert!(cut > 0, "{}: no read was cut off", way.0);
    });
}
