//! The detector's thread: carries datagrams, time and news between the pure machine and the world. Blocks only in `poll`;
//! questions to the process manager, which may take their time, are asked by a second thread that is started when there
//! is one.

use super::addresses::{decode, for_socket};
use super::home::Home;
use super::seal::{DATAGRAM_MAX, Sealer};
use super::{Command, KEY, News, Shared};
use ironweave_ffi::descriptors;
use ironweave_ft::detector::{Config, Detector, Effect, Event, Message, Nanos};
use ironweave_ft::{How, Source};
use ironweave_rte::{Directory, Fate, Job, Lifeline, Liveness};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Datagrams kept for a process whose address is being looked up.
const WAITING_MAX: usize = 8;
/// How long a process without an address is not looked up again.
const NOWHERE: Duration = Duration::from_secs(1);
/// How long a host that did not say whether a process of it is starved is not asked again: many are accused at once when it is lost.
const MUTE: Duration = Duration::from_secs(1);
/// Datagrams read in one turn: a flood does not hold up the rest.
const BURST: usize = 4096;

/// Where another detector is reached.
enum Where {
    /// In turn: an interface that is lost loses every other heartbeat, not all.
    Known { addresses: Vec<SocketAddr>, turn: usize },
    /// Being looked up.
    Asked { waiting: Vec<Vec<u8>> },
    /// It published nothing, or garbage.
    Nowhere { since: Instant },
}

/// What is asked of the process manager.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Question {
    Address(u32),
    /// Whether an accused process waits for a core.
    Starved(u32),
    /// It does not: what the process manager knows of it; where it cannot say, it ends it.
    Fate(u32),
    Left(u32),
    Dead,
}

/// What it answered.
enum Answer {
    Address(u32, Vec<SocketAddr>),
    Fate(u32, Fate),
    Starved { process: u32, starved: bool },
    Left(u32),
    Dead(Vec<u32>),
}

/// The thread's state.
pub(super) struct Driver {
    shared: Arc<Shared>,
    detector: Detector,
    sealer: Sealer,
    local: SocketAddr,
    peers: HashMap<u32, Where>,
    liveness: Liveness,
    /// How much of the liveness page was read.
    page: usize,
    directory: Directory,
    /// Held as long as this thread runs.
    lifeline: Option<Lifeline>,
    questions: Option<Sender<Question>>,
    /// How many of them were put.
    asked: u64,
    asker: Arc<AskerState>,
    answers: (Sender<Answer>, Receiver<Answer>),
    /// Since this thread's beginning.
    clock: Box<dyn Fn() -> Nanos + Send>,
}

/// How many questions the asking thread has taken, and has done with.
#[derive(Default)]
struct AskerState {
    taken: AtomicU64,
    done: AtomicU64,
}

/// Whether the thread goes on.
#[derive(PartialEq, Eq)]
enum Life {
    On,
    Over,
}

impl Driver {
    /// Looks up the ring's neighbours; everybody else is looked up when needed.
    pub(super) fn new(config: Config, job: &Job, shared: Arc<Shared>) -> io::Result<Driver> {
        let local = shared.socket.local_addr()?;
        let origin = Instant::now();
        let mut driver = Driver {
            shared,
            detector: Detector::new(job.rank(), job.size(), config, 0),
            sealer: Sealer::new(&job.secret(), job.id(), job.rank(), job.size()),
            local,
            peers: HashMap::new(),
            liveness: job.liveness().clone(),
            page: 0,
            directory: job.directory().clone(),
            lifeline: job.lifeline(),
            questions: None,
            asked: 0,
            asker: Arc::default(),
            answers: channel(),
            clock: Box::new(move || origin.elapsed().as_nanos() as Nanos),
        };
        let (emitter, observer) = (driver.detector.emitter(), driver.detector.observer());
        for neighbour in emitter.into_iter().chain(observer) {
            let published = driver.directory.lookup(neighbour, KEY).ok().flatten();
            driver.located(neighbour, reachable(published, local));
        }
        Ok(driver)
    }

    /// Until it is told to end. Says when it holds its lifeline, or cannot.
    pub(super) fn run(mut self, holds: &SyncSender<()>) {
        // A heartbeat must not wait for the program's slice to end.
        let _ = ironweave_ffi::system::prefer_short_slices(Duration::from_micros(100));
        if let Err(error) = self.part_descriptors() {
            tracing::debug!(%error, "the detector's thread has the process's descriptors");
        }
        let held = self.lifeline.map(Lifeline::hold);
        if let Some(Err(error)) = &held {
            tracing::debug!(%error, "this process's end is known when it is over");
        }
        let _ = holds.send(());
        while self.turn() == Life::On {
            self.wait();
        }
        drop(held);
        self.shared.desk().over = true;
        self.shared.over.notify_all();
    }

    /// The program's system calls cost no more for this thread's being there.
    fn part_descriptors(&self) -> io::Result<()> {
        let Shared { socket, wake, woken, .. } = &*self.shared;
        self.directory.with_descriptor(|connection| {
            let own = [socket.as_fd(), wake.as_fd(), woken.as_fd()];
            let keep: Vec<_> = own.into_iter().chain(connection).collect();
            descriptors::part(&keep)
        })
    }

    fn now(&self) -> Nanos {
        (self.clock)()
    }

    /// Everything that happened, then time, then what follows from both.
    fn turn(&mut self) -> Life {
        let commands = std::mem::take(&mut self.shared.desk().commands);
        for command in commands {
            let event = match command {
                Command::Suspect(process) => Event::Suspect(process),
                Command::Failed { process, everybody } => {
                    Event::Failed { processes: vec![process], everybody }
                }
                // The engine has agreed with all living processes on that (`Engine::part_together`).
                Command::Leave => Event::Leave { together: true },
                Command::Stop => return Life::Over,
            };
            self.detector.handle(event, self.now());
        }
        self.read_page();
        if self.directory.has_told_of_death() {
            self.ask(Question::Dead);
        }
        // What was said before an answer was found is handled before that answer.
        let answers: Vec<Answer> = self.answers.1.try_iter().collect();
        self.receive();
        for answer in answers {
            self.answered(answer);
        }
        let now = self.now();
        if self.asker_is_late() {
            self.detector.handle(Event::Waiting, now);
        }
        if self.detector.next_deadline().is_some_and(|deadline| now >= deadline) {
            self.detector.tick(now);
        }
        self.carry_out()
    }

    /// Whether questions lie there that the asking thread has not taken, though it has nothing else to do: it gets no core.
    fn asker_is_late(&self) -> bool {
        let taken = self.asker.taken.load(Ordering::Acquire);
        taken < self.asked && taken == self.asker.done.load(Ordering::Acquire)
    }

    fn read_page(&mut self) {
        let failed = self.liveness.failed_since(&mut self.page);
        let processes: Vec<u32> = failed.map(|failed| failed.rank).collect();
        if !processes.is_empty() {
            self.detector.handle(Event::Failed { processes, everybody: true }, self.now());
        }
    }

    fn receive(&mut self) {
        let mut buffer = [0; DATAGRAM_MAX + 1];
        for _ in 0..BURST {
            let (length, source) = match self.shared.socket.recv_from(&mut buffer) {
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                // Nothing more, or something about an earlier send that nobody needs to know.
                Err(_) => return,
            };
            let Some((from, message)) = self.sealer.open(&buffer[..length]) else {
                tracing::debug!(%source, length, "a datagram that is not believed");
                continue;
            };
            if !matches!(self.peers.get(&from), Some(Where::Known { .. })) {
                self.located(from, vec![source]);
            }
            self.detector.handle(Event::Message { from, message }, self.now());
        }
    }

    fn answered(&mut self, answer: Answer) {
        match answer {
            Answer::Address(process, addresses) => self.located(process, addresses),
            Answer::Fate(process, fate) => {
                let failed = fate != Fate::Left;
                self.detector.handle(Event::Verdict { process, failed }, self.now());
            }
            Answer::Starved { process, starved: true } => {
                tracing::debug!(process, "silent for want of a core");
                self.detector.handle(Event::Starved(process), self.now());
            }
            // On a busy machine that answer took long, and the process may have spoken meanwhile.
            Answer::Starved { process, starved: false } => {
                if self.detector.accuses(process) {
                    self.ask(Question::Fate(process));
                }
            }
            Answer::Left(process) => self.detector.handle(Event::HasLeft(process), self.now()),
            Answer::Dead(dead) => {
                for &process in &dead {
                    let (how, source) = (How::Gone, Source::ResourceManager);
                    self.shared.publish(News::Failed { process, how, source });
                }
                self.detector
                    .handle(Event::Failed { processes: dead, everybody: true }, self.now());
            }
        }
    }

    fn carry_out(&mut self) -> Life {
        while let Some(effect) = self.detector.poll_effect() {
            match effect {
                Effect::Send { to, message } => self.send(to, &message),
                Effect::Accused(process) => {
                    tracing::debug!(process, "silent");
                    self.ask(Question::Starved(process));
                }
                Effect::Missing(process) => self.ask(Question::Left(process)),
                Effect::Declared(process) => self.failed(process, Source::Detector),
                Effect::Told(process) => self.failed(process, Source::Told),
                Effect::Lives(process) => self.shared.publish(News::Lives(process)),
                Effect::Fenced => {
                    self.shared.publish(News::Fenced);
                    return Life::Over;
                }
                Effect::Left => return Life::Over,
            }
        }
        Life::On
    }

    fn failed(&self, process: u32, source: Source) {
        self.shared.publish(News::Failed { process, how: How::Silent, source });
    }

    fn send(&mut self, to: u32, message: &Message) {
        let datagram = self.sealer.seal(to, message);
        let again = |since: &Instant| since.elapsed() >= NOWHERE;
        match self.peers.get_mut(&to) {
            Some(Where::Known { addresses, turn }) => {
                *turn = (*turn + 1) % addresses.len();
                // Lost like any other datagram: whoever needs it sends again.
                let _ = self.shared.socket.send_to(&datagram, addresses[*turn]);
            }
            Some(Where::Asked { waiting }) => {
                if waiting.len() < WAITING_MAX {
                    waiting.push(datagram);
                }
            }
            Some(Where::Nowhere { since }) if !again(since) => {}
            Some(Where::Nowhere { .. }) | None => {
                self.peers.insert(to, Where::Asked { waiting: vec![datagram] });
                self.ask(Question::Address(to));
            }
        }
    }

    /// What is known of where `process` is; what waited for it is sent.
    fn located(&mut self, process: u32, addresses: Vec<SocketAddr>) {
        let found = match addresses.is_empty() {
            true => Where::Nowhere { since: Instant::now() },
            false => Where::Known { addresses, turn: 0 },
        };
        let known_better = matches!(
            (&found, self.peers.get(&process)),
            (Where::Nowhere { .. }, Some(Where::Known { .. }))
        );
        if known_better {
            return;
        }
        let before = self.peers.insert(process, found);
        if let (Some(Where::Asked { waiting }), Some(Where::Known { addresses, .. })) =
            (before, self.peers.get(&process))
        {
            for datagram in waiting {
                let _ = self.shared.socket.send_to(&datagram, addresses[0]);
            }
            // It was not asked before, however long the look-up took: who asks may get no core, either.
            self.detector.handle(Event::Unasked(process), self.now());
        }
    }

    /// Asks the process manager, in the other thread.
    fn ask(&mut self, question: Question) {
        if self.questions.is_none() {
            self.questions = self.start_asker();
        }
        let unasked = match &self.questions {
            Some(questions) => questions.send(question).err().map(|error| error.0),
            None => Some(question),
        };
        self.asked += u64::from(unasked.is_none());
        // No thread to be had: nobody can say more than we know.
        match unasked {
            Some(Question::Starved(process) | Question::Fate(process)) => {
                self.detector.handle(Event::Verdict { process, failed: true }, self.now());
            }
            Some(Question::Address(process)) => self.located(process, Vec::new()),
            Some(Question::Left(_) | Question::Dead) | None => {}
        }
    }

    fn start_asker(&self) -> Option<Sender<Question>> {
        let (questions, asked) = channel();
        let asker = Asker {
            asked,
            answers: self.answers.0.clone(),
            directory: self.directory.clone(),
            shared: Arc::downgrade(&self.shared),
            state: Arc::clone(&self.asker),
            local: self.local,
            homes: HashMap::new(),
            mute: HashMap::new(),
        };
        let started = std::thread::Builder::new().name("iw-asker".into()).spawn(|| asker.run());
        started.ok().map(|_| questions)
    }

    /// Waits for a datagram, a wake-up, or the machine's deadline.
    fn wait(&self) {
        let timeout = self.detector.next_deadline().map(|deadline| {
            let left = Duration::from_nanos(deadline.saturating_sub(self.now()));
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let woken = &self.shared.woken;
        let mut fds =
            [PollFd::new(&self.shared.socket, PollFlags::IN), PollFd::new(woken, PollFlags::IN)];
        // Interrupted, or refused for want of memory: the next turn tries again.
        let _ = poll(&mut fds, timeout.as_ref());
        let mut bytes = [0; 64];
        while matches!(rustix::io::read(woken, &mut bytes), Ok(64)) {}
    }
}

/// What was published, as far as a socket bound to `local` can send there.
fn reachable(published: Option<Vec<u8>>, local: SocketAddr) -> Vec<SocketAddr> {
    let addresses = published.map(|blob| decode(&blob).0).unwrap_or_default();
    let fits = |to: &SocketAddr| to.is_ipv6() == local.is_ipv6();
    addresses.into_iter().map(|to| for_socket(to, local)).filter(fits).collect()
}

/// The thread that asks the process manager.
struct Asker {
    asked: Receiver<Question>,
    answers: Sender<Answer>,
    directory: Directory,
    /// Not held: the engine's thread is to be the last.
    shared: Weak<Shared>,
    state: Arc<AskerState>,
    local: SocketAddr,
    /// Where those run that were asked about.
    homes: HashMap<u32, Home>,
    /// Other hosts that were asked in vain, and when.
    mute: HashMap<[u8; 16], Instant>,
}

impl Asker {
    fn is_starved(&mut self, process: u32) -> bool {
        if !self.homes.contains_key(&process) {
            let published = self.directory.lookup(process, KEY).ok().flatten();
            self.homes.extend(published.and_then(|blob| Some((process, decode(&blob).1?))));
        }
        let Some(home) = self.homes.get(&process) else { return false };
        let held_up = if home.is_here() {
            home.process.is_held_up()
        } else if self.mute.get(&home.host).is_some_and(|since| since.elapsed() < MUTE) {
            false
        } else {
            let seen = self.directory.is_starved(process, home.process).ok().flatten();
            if seen.is_none() {
                self.mute.insert(home.host, Instant::now());
            }
            seen == Some(true)
        };
        // One that has left has no detector any more, and is no failure.
        held_up && !matches!(self.directory.has_left(process), Ok(true))
    }

    /// Until the driver is gone.
    fn run(mut self) {
        while let Ok(question) = self.asked.recv() {
            self.state.taken.fetch_add(1, Ordering::Release);
            let answer = self.answer(question);
            let heard = answer.is_none_or(|answer| self.answers.send(answer).is_ok());
            self.state.done.fetch_add(1, Ordering::Release);
            if !heard {
                return;
            }
            let Some(shared) = self.shared.upgrade() else { return };
            let _ = rustix::io::write(&shared.wake, &[1]);
        }
    }

    /// What the process manager says.
    fn answer(&mut self, question: Question) -> Option<Answer> {
        Some(match question {
            Question::Address(process) => {
                let published = self.directory.lookup(process, KEY).ok().flatten();
                Answer::Address(process, reachable(published, self.local))
            }
            Question::Starved(process) => {
                Answer::Starved { process, starved: self.is_starved(process) }
            }
            Question::Fate(process) => {
                Answer::Fate(process, self.directory.accuse(process).unwrap_or(Fate::Unknown))
            }
            Question::Left(process) => match self.directory.has_left(process) {
                Ok(true) => Answer::Left(process),
                _ => return None,
            },
            Question::Dead => {
                Answer::Dead(self.directory.told_dead().ok().flatten().unwrap_or_default())
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironweave_ft::detector::{Config, Digest};
    use rustix::pipe::{PipeFlags, pipe_with};
    use std::net::UdpSocket;
    use std::sync::{Condvar, Mutex};

    const MS: Nanos = 1_000_000;
    const CONFIG: Config =
        Config { period: 100 * MS, timeout: 3_000 * MS, probe_timeout: 1_000 * MS };
    const SECRET: [u8; 32] = [7; 32];
    /// Who does not speak unless told to; the driver is process 0.
    const OTHER: u32 = 1;

    /// A driver of two processes on a clock of ours; the other process and the process manager are played by the test.
    struct Rig {
        driver: Driver,
        clock: Arc<AtomicU64>,
        asked: Receiver<Question>,
        socket: UdpSocket,
        sealer: Sealer,
    }

    impl Rig {
        fn new() -> Rig {
            let job = Job::join().expect("a job of one");
            let socket = || UdpSocket::bind("127.0.0.1:0").expect("a socket");
            let (ours, theirs) = (socket(), socket());
            for socket in [&ours, &theirs] {
                socket.set_nonblocking(true).expect("a flag");
            }
            let local = ours.local_addr().expect("bound");
            let there = theirs.local_addr().expect("bound");
            let (woken, wake) =
                pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).expect("a pipe");
            let shared = Shared {
                socket: ours,
                version: AtomicU64::new(0),
                desk: Mutex::default(),
                over: Condvar::new(),
                wake,
                woken,
            };
            let clock = Arc::new(AtomicU64::new(0));
            let now = Arc::clone(&clock);
            let (questions, asked) = channel();
            let driver = Driver {
                shared: Arc::new(shared),
                detector: Detector::new(0, 2, CONFIG, 0),
                sealer: Sealer::new(&SECRET, "job", 0, 2),
                local,
                peers: [(OTHER, Where::Known { addresses: vec![there], turn: 0 })].into(),
                liveness: job.liveness().clone(),
                page: 0,
                directory: job.directory().clone(),
                lifeline: None,
                questions: Some(questions),
                asked: 0,
                asker: Arc::default(),
                answers: channel(),
                clock: Box::new(move || now.load(Ordering::Relaxed)),
            };
            let sealer = Sealer::new(&SECRET, "job", OTHER, 2);
            Rig { driver, clock, asked, socket: theirs, sealer }
        }

        fn now(&self) -> Nanos {
            self.clock.load(Ordering::Relaxed)
        }

        /// A turn, and what was asked in it.
        fn turn(&mut self) -> Vec<Question> {
            assert!(self.driver.turn() == Life::On, "it goes on");
            let asked: Vec<Question> = self.asked.try_iter().collect();
            // Taken, and never done with.
            self.driver.asker.taken.fetch_add(asked.len() as u64, Ordering::Relaxed);
            asked
        }

        /// A turn a period later.
        fn later(&mut self) -> Vec<Question> {
            self.clock.fetch_add(CONFIG.period, Ordering::Relaxed);
            self.turn()
        }

        /// Lets time pass until something is asked; how long that was.
        fn until_asked(&mut self, question: Question) -> Nanos {
            let since = self.now();
            loop {
                match self.later()[..] {
                    [] => assert!(self.now() < since + 10 * CONFIG.timeout, "never {question:?}"),
                    [asked] if asked == question => return self.now() - since,
                    ref asked => panic!("not {question:?} but {asked:?}"),
                }
            }
        }

        fn answer(&mut self, answer: Answer) {
            self.driver.answers.0.send(answer).expect("the driver has the other end");
        }

        fn answer_starved(&mut self, starved: bool) -> Vec<Question> {
            self.answer(Answer::Starved { process: OTHER, starved });
            self.turn()
        }

        fn say(&mut self, message: &Message) {
            let datagram = self.sealer.seal(0, message);
            self.socket.send_to(&datagram, self.driver.local).expect("sent");
        }

        fn beat(&mut self) {
            self.say(&Message::Beat { chain: Vec::new(), known: Digest::default() });
        }

        /// Answers what it is asked by the detector.
        fn answer_probes(&mut self) {
            let mut buffer = [0; DATAGRAM_MAX];
            while let Ok(length) = self.socket.recv(&mut buffer) {
                if let Some((0, Message::Probe { token })) = self.sealer.open(&buffer[..length]) {
                    self.say(&Message::Answer { token });
                }
            }
        }

        fn news(&mut self) -> Vec<News> {
            std::mem::take(&mut self.driver.shared.desk().news)
        }
    }

    const ENDED: News = News::Failed { process: OTHER, how: How::Silent, source: Source::Detector };

    /// The answer took long, and meanwhile it has spoken: that is in the socket when the answer is there, and is heard first.
    #[test]
    fn who_speaks_before_it_is_judged_is_heard() {
        let mut rig = Rig::new();
        rig.until_asked(Question::Starved(OTHER));
        rig.beat();
        assert_eq!(rig.answer_starved(false), [], "it is not to be ended");
        assert!(!rig.driver.detector.accuses(OTHER));
        // It is believed again: who goes on speaking is not asked for, who does not is, after a whole timeout.
        for _ in 0..3 * CONFIG.timeout / CONFIG.period {
            rig.beat();
            assert_eq!(rig.later(), []);
        }
        assert!(rig.until_asked(Question::Starved(OTHER)) >= CONFIG.timeout);
        assert_eq!(rig.news(), []);
    }

    #[test]
    fn a_suspect_that_answers_before_it_is_judged_is_heard() {
        let mut rig = Rig::new();
        rig.driver.shared.command(Command::Suspect(OTHER));
        assert!(rig.until_asked(Question::Starved(OTHER)) < CONFIG.timeout);
        rig.answer_probes();
        assert_eq!(rig.answer_starved(false), [], "it is not to be ended");
        assert_eq!(rig.news(), [News::Lives(OTHER)]);
    }

    /// Where nobody can end it, and nobody has, its word counts until the end.
    #[test]
    fn who_speaks_while_its_fate_is_asked_for_is_heard() {
        let mut rig = Rig::new();
        rig.until_asked(Question::Starved(OTHER));
        assert_eq!(rig.answer_starved(false), [Question::Fate(OTHER)]);
        rig.beat();
        rig.answer(Answer::Fate(OTHER, Fate::Unknown));
        assert_eq!(rig.turn(), []);
        assert_eq!(rig.news(), []);
    }

    #[test]
    fn who_stays_silent_is_judged_once_and_ended() {
        for (fate, news) in
            [(Fate::Failed, &[ENDED][..]), (Fate::Unknown, &[ENDED]), (Fate::Left, &[])]
        {
            let mut rig = Rig::new();
            rig.until_asked(Question::Starved(OTHER));
            assert_eq!(rig.answer_starved(false), [Question::Fate(OTHER)]);
            assert_eq!(rig.later(), [], "once is enough");
            assert_eq!(rig.news(), [], "nobody is judged without an answer");
            rig.answer(Answer::Fate(OTHER, fate));
            assert_eq!(rig.turn(), []);
            assert_eq!(rig.news(), news, "{fate:?}");
        }
    }

    /// No answer comes, at either question: patience ends after half a timeout.
    #[test]
    fn without_an_answer_patience_ends() {
        for asked_twice in [false, true] {
            let mut rig = Rig::new();
            rig.until_asked(Question::Starved(OTHER));
            let since = rig.now();
            if asked_twice {
                assert_eq!(rig.answer_starved(false), [Question::Fate(OTHER)]);
            }
            while rig.news().is_empty() {
                assert!(rig.now() - since <= CONFIG.timeout / 2, "never ended");
                assert_eq!(rig.later(), []);
            }
            assert!(rig.now() - since >= CONFIG.timeout / 2, "{}", rig.now() - since);
        }
    }

    /// Who asks gets no core: nobody has looked at the accused, so it is not judged.
    #[test]
    fn time_in_which_nobody_asked_is_no_patience() {
        let mut rig = Rig::new();
        let turns = 5 * CONFIG.timeout / CONFIG.period;
        let turn = |rig: &mut Rig| {
            rig.clock.fetch_add(CONFIG.period, Ordering::Relaxed);
            assert!(rig.driver.turn() == Life::On);
        };
        (0..turns).for_each(|_| turn(&mut rig));
        assert!(rig.driver.detector.accuses(OTHER));
        assert_eq!(rig.news(), []);
        assert_eq!(rig.turn(), [Question::Starved(OTHER)], "asked once");
        // It is taken, and the answer does not come.
        (0..turns).for_each(|_| turn(&mut rig));
        assert_eq!(rig.news(), [ENDED]);
    }

    /// A process that is looked up for long was sent nothing meanwhile.
    #[test]
    fn who_was_asked_nothing_yet_is_not_silent() {
        let mut rig = Rig::new();
        let there = rig.socket.local_addr().expect("bound");
        rig.driver.peers.clear();
        rig.driver.shared.command(Command::Suspect(OTHER));
        assert_eq!(rig.until_asked(Question::Address(OTHER)), CONFIG.period);
        let asked = rig.until_asked(Question::Starved(OTHER));
        assert!(asked <= CONFIG.timeout);
        rig.answer(Answer::Address(OTHER, vec![there]));
        assert_eq!(rig.turn(), []);
        assert!(!rig.driver.detector.accuses(OTHER), "it was sent the question a moment ago");
        assert_eq!(rig.answer_starved(false), [], "it is not to be ended");
        rig.answer_probes();
        assert_eq!(rig.later(), []);
        assert_eq!(rig.news(), [News::Lives(OTHER)]);
    }

    /// As often as it is found so; when it is silent for another reason it is ended.
    #[test]
    fn who_is_starved_is_left_alone_until_it_is_not() {
        let mut rig = Rig::new();
        for _ in 0..5 {
            assert!(rig.until_asked(Question::Starved(OTHER)) >= CONFIG.timeout);
            assert_eq!(rig.answer_starved(true), [], "it is not to be ended");
            assert!(!rig.driver.detector.accuses(OTHER));
        }
        assert_eq!(rig.news(), []);
        assert!(rig.until_asked(Question::Starved(OTHER)) >= CONFIG.timeout);
        assert_eq!(rig.answer_starved(false), [Question::Fate(OTHER)]);
        rig.answer(Answer::Fate(OTHER, Fate::Failed));
        assert_eq!(rig.turn(), []);
        assert_eq!(rig.news(), [ENDED]);
    }

    #[test]
    fn where_nobody_can_be_asked_silence_is_enough() {
        let mut rig = Rig::new();
        (_, rig.asked) = channel();
        while rig.news().is_empty() {
            assert!(rig.now() <= CONFIG.timeout, "never ended");
            assert_eq!(rig.later(), []);
        }
        assert!(rig.now() >= CONFIG.timeout, "{}", rig.now());
    }
}
