//! A handful of processes with one transport each, and the script's way to direct them.
//!
//! Process 0 is in the test's own process, so that scripts may call its transport; the others are wherever the
//! harness has them. Whatever the script waits for, the processes here are stepped meanwhile.

use crate::child::{Control, Role, nap};
use crate::command::{Answer, Command, Flood, Status};
use crate::node::Node;
use crate::run::{Run, Skip, doing, patience};
use crate::{Harness, Place, Site};
use ironweave_btl::{Address, Btl, EndpointState, Peer};
use rand::{SeedableRng, rngs::SmallRng};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Child;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Tells the stages of one test binary apart.
static STAGES: AtomicU32 = AtomicU32::new(0);

struct Remote {
    role: Role,
    child: Child,
    control: Control,
    alive: bool,
}

pub(crate) struct Stage<H: Harness> {
    run: Run,
    site: Site,
    // Before `world`: transports go first.
    locals: BTreeMap<u32, Node<H>>,
    world: H::World,
    remotes: Vec<Remote>,
    addresses: Vec<Address>,
    deadline: Instant,
    idle: u32,
    pub rng: SmallRng,
}

impl<H: Harness> Stage<H> {
    /// `processes` processes, each by itself.
    pub(crate) fn open(run: &Run, processes: u32) -> Result<Self, Skip> {
        Self::open_hosted(run, processes, 1)
    }

    /// `processes` processes, of which all but the first share real processes, `per_host` each.
    pub(crate) fn open_hosted(run: &Run, processes: u32, per_host: u32) -> Result<Self, Skip> {
        if H::PLACE == Place::Alone && processes > 1 {
            return Err(Skip::from("a transport of one process to itself"));
        }
        let number = STAGES.fetch_add(1, Relaxed);
        let job = format!("iwc-{}-{number}", std::process::id());
        let scratch = std::env::temp_dir().join(&job);
        std::fs::create_dir_all(&scratch)?;
        let mut secret = [0; 32];
        crate::pattern::fill(run.seed, 0, &mut secret);
        let site = Site { me: Peer(0), processes, job, secret, scratch, seed: run.seed };
        let mut stage = Stage {
            run: run.clone(),
            world: H::world(&site),
            site,
            locals: BTreeMap::new(),
            remotes: Vec::new(),
            addresses: Vec::new(),
            deadline: Instant::now() + patience(),
            idle: 0,
            rng: SmallRng::seed_from_u64(run.seed ^ 0x57a6e),
        };
        if H::PLACE == Place::Processes {
            for first in (1..processes).step_by(per_host as usize) {
                let count = per_host.min(processes - first);
                let role = Role { first, count, site: stage.site.clone() };
                let (child, control) = role.start(run.name())?;
                let control = Control::new(control);
                stage.remotes.push(Remote { role, child, control, alive: true });
            }
        }
        let here = if H::PLACE == Place::Processes { 1 } else { processes };
        for me in 0..here {
            let site = Site { me: Peer(me), ..stage.site.clone() };
            stage.locals.insert(me, Node::open(&stage.world, site)?);
        }
        for at in 0..stage.remotes.len() {
            if let Answer::Refused(why) = stage.answer_of(at) {
                return Err(Skip(why));
            }
        }
        for me in 0..processes {
            match stage.command(me, Command::Address) {
                Answer::Address(address) => stage.addresses.push(address),
                other => stage.fail(&format!("process {me} has no address: {other:?}")),
            }
        }
        Ok(stage)
    }

    pub(crate) fn job(&self) -> &str {
        &self.site.job
    }

    pub(crate) fn processes(&self) -> u32 {
        self.site.processes
    }

    /// The process that scripts with two processes talk to.
    pub(crate) fn peer(&self) -> u32 {
        u32::from(H::PLACE != Place::Alone)
    }

    pub(crate) fn address(&self, process: u32) -> Address {
        self.addresses[process as usize].clone()
    }

    /// Process 0, whose transport is here.
    pub(crate) fn me(&mut self) -> &mut Node<H> {
        self.locals.get_mut(&0).expect("process 0 is never killed")
    }

    pub(crate) fn is_here(&self, process: u32) -> bool {
        self.locals.contains_key(&process)
    }

    /// Ends the test with everything that is known.
    pub(crate) fn fail(&mut self, why: &str) -> ! {
        panic!("{}: {why}", self.run.name());
    }

    fn dump(&mut self) -> String {
        let mut out = String::new();
        for node in self.locals.values() {
            for violation in &node.check.violations {
                out.push_str(&format!("VIOLATION {violation}\n"));
            }
            out.push_str(&node.dump());
        }
        for at in 0..self.remotes.len() {
            let remote = &mut self.remotes[at];
            if !remote.alive {
                out.push_str(&format!("process {} was killed\n", remote.role.first));
                continue;
            }
            let lines = (remote.role.first..).take(remote.role.count.min(3) as usize);
            for process in lines {
                self.remotes[at].control.send(&format!("{process} dump"));
                match self.answer_within(at, Duration::from_secs(2)) {
                    Some(Answer::Text(text)) => out.push_str(&text),
                    other => out.push_str(&format!("process {process} says {other:?}\n")),
                }
            }
        }
        out
    }

    /// Steps every process that is here once.
    pub(crate) fn turn(&mut self) {
        let mut busy = false;
        for node in self.locals.values_mut() {
            busy |= node.step();
        }
        if self.locals.values().any(|node| !node.check.violations.is_empty()) {
            self.fail("the contract was broken");
        }
        if H::PLACE == Place::Processes {
            self.idle = if busy { 0 } else { self.idle + 1 };
            nap(self.idle);
        } else if !busy {
            H::idle(&self.world);
        }
        if Instant::now() > self.deadline {
            let dump = self.dump();
            eprintln!(
                "WATCHDOG: {} still waits for {}\n{dump}\nseed {}; to run it again:\n  {}",
                self.run.name(),
                crate::run::what_it_does(),
                self.run.seed,
                self.run.replay()
            );
            self.end_remotes();
            std::process::abort();
        }
    }

    pub(crate) fn turns(&mut self, turns: u32) {
        for _ in 0..turns {
            self.turn();
        }
    }

    /// Turns until `done`.
    pub(crate) fn until(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        doing(what);
        let end = Instant::now() + patience();
        self.deadline = end;
        while !done(self) {
            self.deadline = end; // questions asked meanwhile have deadlines of their own
            self.turn();
        }
    }

    /// Turns until `look` says so. What it also says is how far things are: whenever that changes the time limit begins again, so
    /// that much to do on a slow machine is not taken for a hang.
    pub(crate) fn follow(&mut self, what: &str, mut look: impl FnMut(&mut Self) -> (bool, u64)) {
        doing(what);
        let mut end = Instant::now() + patience();
        let mut seen = None;
        loop {
            self.deadline = end;
            let (done, far) = look(self);
            if done {
                return;
            }
            if seen.replace(far) != Some(far) {
                end = Instant::now() + patience();
            }
            self.deadline = end;
            self.turn();
        }
    }

    fn remote_of(&self, process: u32) -> usize {
        let has = |remote: &Remote| {
            (remote.role.first..remote.role.first + remote.role.count).contains(&process)
        };
        self.remotes.iter().position(has).expect("a process is here or started")
    }

    fn answer_within(&mut self, at: usize, limit: Duration) -> Option<Answer> {
        let end = Instant::now() + limit;
        while Instant::now() < end {
            match self.remotes[at].control.receive() {
                Ok(Some(line)) => return Answer::decode(&line),
                Ok(None) => std::thread::sleep(Duration::from_micros(200)),
                Err(_) => return None,
            }
        }
        None
    }

    fn answer_of(&mut self, at: usize) -> Answer {
        loop {
            match self.remotes[at].control.receive() {
                Ok(Some(line)) => {
                    return Answer::decode(&line)
                        .unwrap_or_else(|| self.fail(&format!("an answer nobody knows: {line}")));
                }
                Ok(None) => self.turn(),
                Err(_) => {
                    let first = self.remotes[at].role.first;
                    self.remotes[at].alive = false;
                    self.fail(&format!("process {first} ended by itself"));
                }
            }
        }
    }

    /// Has `process` do something, and waits for its answer.
    pub(crate) fn command(&mut self, process: u32, command: Command) -> Answer {
        if let Some(node) = self.locals.get_mut(&process) {
            return node.execute(command);
        }
        doing(&format!("the answer of process {process} to {command:?}"));
        self.deadline = Instant::now() + patience();
        let at = self.remote_of(process);
        self.remotes[at].control.send(&format!("{process} {}", command.encode()));
        self.answer_of(at)
    }

    /// As `command`, where nothing but `Done` will do.
    pub(crate) fn tell(&mut self, process: u32, command: Command) {
        match self.command(process, command.clone()) {
            Answer::Done => {}
            other => self.fail(&format!("process {process} answers {other:?} to {command:?}")),
        }
    }

    pub(crate) fn status(&mut self, process: u32) -> Status {
        self.ask(process, Command::Status)
    }

    /// The status after a look at every buffer that ever came back.
    pub(crate) fn inspect(&mut self, process: u32) -> Status {
        self.ask(process, Command::Inspect)
    }

    fn ask(&mut self, process: u32, question: Command) -> Status {
        match self.command(process, question) {
            Answer::Status(status) => {
                if !status.violations.is_empty() {
                    let all = status.violations.join("\n  ");
                    self.fail(&format!("the contract was broken:\n  {all}"));
                }
                status
            }
            other => self.fail(&format!("process {process} has no status: {other:?}")),
        }
    }

    /// Has `from` connect to `to`; `false` when the attempt was refused at once.
    pub(crate) fn connect(&mut self, from: u32, to: u32) -> bool {
        let address = self.address(to);
        match self.command(from, Command::Connect(to, address)) {
            Answer::Done => true,
            Answer::Refused(_) => false,
            other => self.fail(&format!("process {from} answers {other:?} to a connect")),
        }
    }

    /// Connects process 0 with each other one and waits until all are up.
    pub(crate) fn connect_all(&mut self) {
        let others: Vec<u32> =
            if H::PLACE == Place::Alone { vec![0] } else { (1..self.processes()).collect() };
        for &other in &others {
            self.reach(other);
        }
    }

    /// Connects process 0 with `peer` until it is up; an attempt that comes too early may fail.
    pub(crate) fn reach(&mut self, peer: u32) {
        for _ in 0..50 {
            if self.me().btl().state(Peer(peer)) == EndpointState::Failing {
                self.until("an endpoint to close", |stage| {
                    stage.me().btl().state(Peer(peer)) == EndpointState::Closed
                });
            }
            if !self.connect(0, peer) {
                self.turns(20);
                continue;
            }
            self.until("a connection", |stage| {
                let log = stage.me().check.log(peer);
                log.up || !log.open
            });
            if self.me().check.log(peer).up {
                return;
            }
        }
        self.fail(&format!("process 0 cannot connect to {peer}"));
    }

    pub(crate) fn flood(&mut self, from: u32, to: u32, frames: u64, longest: usize) {
        let tiers = crate::command::tier::ALL;
        self.tell(from, Command::Flood(Flood { to, frames, longest, tiers, die_at: None }));
    }

    /// SIGKILL, or what the harness has for it.
    pub(crate) fn kill(&mut self, process: u32) {
        if self.locals.contains_key(&process) {
            H::kill(&self.world, Peer(process));
            self.locals.remove(&process);
            return;
        }
        let at = self.remote_of(process);
        let remote = &mut self.remotes[at];
        remote.alive = false;
        let _ = remote.child.kill();
        let _ = remote.child.wait();
    }

    /// Waits for a process that was told to kill itself.
    pub(crate) fn wait_for_death(&mut self, process: u32) {
        let at = self.remote_of(process);
        self.until("a process to kill itself", |stage| {
            matches!(stage.remotes[at].child.try_wait(), Ok(Some(_)))
        });
        self.remotes[at].alive = false;
    }

    /// Stops a process (`true`) or lets it go on, as SIGSTOP and SIGCONT do.
    pub(crate) fn stop(&mut self, process: u32, stop: bool) {
        use rustix::process::{Pid, Signal, kill_process};
        if self.is_here(process) {
            self.tell(process, Command::Freeze(stop));
            return;
        }
        let at = self.remote_of(process);
        let signal = if stop { Signal::STOP } else { Signal::CONT };
        let sent = kill_process(Pid::from_child(&self.remotes[at].child), signal);
        if let Err(error) = sent {
            self.fail(&format!("process {process} cannot be stopped: {error}"));
        }
    }

    /// Looks at every living process for the last time.
    pub(crate) fn finish(mut self) {
        for process in 0..self.processes() {
            if self.is_alive(process) {
                self.inspect(process);
            }
        }
    }

    fn is_alive(&self, process: u32) -> bool {
        self.is_here(process)
            || (H::PLACE == Place::Processes && self.remotes[self.remote_of(process)].alive)
    }

    fn end_remotes(&mut self) {
        for remote in &mut self.remotes {
            if remote.alive {
                let _ = remote.child.kill();
                let _ = remote.child.wait();
            }
        }
    }
}

impl<H: Harness> Drop for Stage<H> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!(
                "{}\nseed {}; to run it again:\n  {}",
                self.dump(),
                self.run.seed,
                self.run.replay()
            );
        }
        self.end_remotes();
        let scratch: PathBuf = std::mem::take(&mut self.site.scratch);
        let _ = std::fs::remove_dir_all(scratch);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Injected;
    use ironweave_btl::Loopback;

    struct ToSelf;

    impl Harness for ToSelf {
        type Btl = Loopback;
        type World = ();
        const PLACE: Place = Place::Alone;

        fn world(_: &Site) {}

        fn open((): &(), site: &Site) -> Result<Loopback, String> {
            Ok(Loopback::new(site.me))
        }

        fn inject(_: &Site, _: &Address, _: u64) -> Injected {
            Injected::Unsupported
        }
    }

    /// Whether a process with a time limit of two seconds gets through six steps of 700 ms, of which `moving` show.
    fn gets_through(test: &str, moving: u64) -> bool {
        const VARIABLE: &str = "IRONWEAVE_CONFORMANCE_STEPS";
        if std::env::var_os(VARIABLE).is_none() {
            let mut command =
                std::process::Command::new(std::env::current_exe().expect("its own path"));
            command.args([test, "--exact"]).env(VARIABLE, "").env("IRONWEAVE_WATCHDOG", "2");
            return command.output().expect("it starts").status.success();
        }
        let run = Run::new(env!("CARGO_PKG_NAME"), concat!(module_path!(), "::steps"));
        let mut stage = Stage::<ToSelf>::open(&run, 1).expect("a transport to oneself opens");
        let mut steps = 0;
        stage.follow("steps", |_| {
            std::thread::sleep(Duration::from_millis(700));
            steps += 1;
            (steps == 6, steps.min(moving))
        });
        std::process::exit(0)
    }

    #[test]
    fn what_takes_long_but_moves_is_no_hang() {
        assert!(gets_through("stage::tests::what_takes_long_but_moves_is_no_hang", 6));
    }

    #[test]
    fn what_stands_still_is_a_hang() {
        assert!(!gets_through("stage::tests::what_stands_still_is_a_hang", 0));
    }
}
