//! Processes that are killed or stopped: this program again, with the name of the test that plays both sides.

use super::*;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, set_parent_process_death_signal, waitpid,
};
use std::path::PathBuf;
use std::process::{Child, Stdio};

/// Names the file where a child says where it is; set in children alone. Beside it: which way, which job, and the endpoint's
/// address, if it is to be a certain one.
const PLACE: &str = "IRONWEAVE_OFI_VICTIM";
const WAY: &str = "IRONWEAVE_OFI_VICTIM_WAY";
const JOB: &str = "IRONWEAVE_OFI_VICTIM_JOB";
const HERE: &str = "IRONWEAVE_OFI_VICTIM_HERE";

/// A process that is killed, at the latest when its parent is done with it.
pub(super) struct Victim {
    process: Child,
    place: PathBuf,
}

impl Victim {
    /// Has a process play its part in `test`, a path with modules; `here`: its endpoint is to be there.
    pub(super) fn start(test: &str, way: &str, round: u32, here: Option<&[u8]>) -> Victim {
        let name = format!("iw-ofi-{}-{way}-{round}", std::process::id());
        let place = std::env::temp_dir().join(name);
        let mut command = Command::new(std::env::current_exe().expect("this test binary"));
        command
            .args([test, "--exact", "--nocapture"])
            .env(PLACE, &place)
            .env(WAY, way)
            .env(JOB, std::process::id().to_string())
            .stdout(Stdio::null());
        if let Some(here) = here {
            command.env(HERE, hex(here));
        }
        Victim { process: command.spawn().expect("a process"), place }
    }

    /// Its address, when it has told.
    pub(super) fn address(&self) -> Address {
        let mut told = None;
        until("the child to open its rail", || {
            told = std::fs::read_to_string(&self.place).ok();
            std::thread::sleep(Duration::from_millis(1));
            told.is_some()
        });
        let bytes = unhex(&told.expect("just seen"));
        Address { component: "ofi".into(), rail: 0, bytes }
    }

    /// Ends it by SIGKILL.
    pub(super) fn kill(&mut self) {
        self.process.kill().expect("it runs");
        self.process.wait().expect("it ends");
    }

    /// Stops it by SIGSTOP, until it is killed, and waits until it has stopped: it may do a lot before the signal reaches it.
    pub(super) fn stop(&self) {
        let pid = Pid::from_child(&self.process);
        kill_process(pid, Signal::STOP).expect("it runs");
        let (_, status) =
            waitpid(Some(pid), WaitOptions::UNTRACED).expect("our child").expect("it waits");
        assert!(status.stopped(), "{status:?}");
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = std::fs::remove_file(&self.place);
    }
}

/// In a child: its rail, as rank 1, once its parent can know where it is. Nothing in a parent.
pub(super) fn be_victim(change: impl Fn(&mut OfiConfig)) -> Option<Node> {
    let place = PathBuf::from(std::env::var_os(PLACE)?);
    set_parent_process_death_signal(Some(Signal::KILL)).expect("a signal");
    let variable = |name: &str| std::env::var(name).expect("set by the parent");
    let (name, job) = (variable(WAY), variable(JOB));
    let way = WAYS.into_iter().find(|way| way.0 == name).expect("one of ours");
    let here = std::env::var(HERE).ok().map(|text| unhex(&text));
    let open = |config: &mut OfiConfig| {
        config.job = format!("faults-{job}");
        config.address = here.clone();
        change(config);
    };
    let node = Node::open_with("victim", way, 1, open).expect("the parent has one too");
    let unfinished = place.with_extension("new");
    std::fs::write(&unfinished, hex(&node.btl.address().bytes))
        .and_then(|()| std::fs::rename(&unfinished, place))
        .expect("a file");
    Some(node)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    let digits = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).expect("two digits");
    (0..text.len() / 2).map(|i| digits(2 * i)).collect()
}
