//! `ironweave run`: the launcher's event loop. Joins the pure head of the job to its hosts, to the
//! terminal, and to signals; decides nothing by itself.

use super::agent::{self, Agents};
use super::head::{Head, Orders, To};
use super::link::{Link, LinkError};
use super::messages::{App, Bind, CHUNK, Down, LaunchSpec, Up};
use super::node::Node;
use super::output::Output;
use super::placement::{self, Host};
use super::pollset::{PollSet, Token};
use super::pulse::{Beat, Pulse};
use super::signals::Signals;
use crate::job::{MAPPING_KEY, SECRET_KEY};
use crate::params::sources;
use crate::pmi::{mapping, text};
use crate::secret;
use rustix::process::Signal;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// What to run, and how.
#[derive(Debug, Clone)]
pub struct Options {
    /// The programs, in the order of their ranks.
    pub apps: Vec<App>,
    /// Where; empty means here.
    pub hosts: Vec<Host>,
    /// The command that starts something on a host; `{host}` stands for its name.
    pub agent: String,
    /// The port daemons connect to; 0 takes any.
    pub port: u16,
    /// Binding to cores.
    pub bind: Option<Bind>,
    /// Lines of output begin with their rank.
    pub tag_output: bool,
    /// The first failure ends the job.
    pub kill_on_failure: bool,
    /// The job is ended after so long.
    pub time_limit: Option<Duration>,
    /// Parameters, in order.
    pub mca: Vec<(String, String)>,
}

/// The exit code of a job that was ended because its time was over, as `timeout` has it.
const OUT_OF_TIME: u8 = 124;

/// Why a job could not be started or kept, in words for the person who started it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LaunchError(pub String);

impl LaunchError {
    pub(super) fn new(what: &str, error: impl std::fmt::Display) -> LaunchError {
        LaunchError(format!("{what}: {error}"))
    }
}

/// Where a host's node is.
#[derive(Debug)]
enum Place {
    Here(Box<Node>),
    There(Link, Pulse),
    Gone,
}

#[derive(Debug)]
struct HostState {
    name: String,
    place: Place,
    drained: bool,
}

/// The launcher's standard input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Input {
    /// Rank 0 can take more.
    Wanted,
    /// Rank 0 has not taken the last piece.
    Waiting,
    /// There is no more, or nobody to take it.
    Ended,
}

struct Launcher {
    head: Head,
    hosts: Vec<HostState>,
    output: Output,
    signals: Signals,
    input: Input,
    interrupted: bool,
    deadline: Option<(Instant, Duration)>,
}

/// Runs a job to its end; returns its exit code (seed 003 §17.5.2).
///
/// Blocks until every rank has ended and its output is written. A rank that dies is told to the
/// others and does not end the job, unless asked to.
///
/// # Errors
/// The job could not be started: words for the user, ranks that had been started are ended.
pub fn run(options: &Options) -> Result<u8, LaunchError> {
    let size = options.apps.iter().fold(0u32, |sum, app| sum.saturating_add(app.ranks));
    if options.apps.is_empty() || options.apps.iter().any(|app| app.ranks == 0) {
        return Err(LaunchError("-n 0: a job has at least one rank".into()));
    }
    super::wake_up_fast();
    let params = sources::load(&options.mca).map_err(|error| LaunchError(error.to_string()))?;
    let here = agent::host_name();
    let hosts = match options.hosts.is_empty() {
        true => vec![(here.clone(), size)],
        false => placement::fill(options.hosts.clone(), size).map_err(LaunchError)?,
    };
    let secret = secret::fresh().map_err(|error| LaunchError(error.to_string()))?;
    let job = secret::fresh_name().map_err(|error| LaunchError(error.to_string()))?;
    let signals = Signals::take_over()
        .map_err(|error| LaunchError::new("cannot take over signals", error))?;

    let is_here = |name: &str| name == here || name == "localhost";
    let remote: Vec<(usize, String)> = (hosts.iter().enumerate())
        .filter(|(_, (name, _))| !is_here(name))
        .map(|(index, (name, _))| (index, name.clone()))
        .collect();
    let (agents, mut links) = agent::start_daemons(options, &params, &secret, &remote)?;

    let counts: Vec<u32> = hosts.iter().map(|(_, count)| *count).collect();
    let kvs = HashMap::from([
        (SECRET_KEY.to_owned(), text::encode(&secret)),
        (MAPPING_KEY.to_owned(), mapping::format(&counts)),
    ]);
    let patience = params.duration("rte_host_timeout");
    let states = hosts.iter().enumerate().map(|(index, (name, _))| HostState {
        name: name.clone(),
        place: match links.remove(&index) {
            Some(link) => Place::There(link, Pulse::new(patience, Instant::now())),
            None => Place::Here(Box::default()),
        },
        drained: false,
    });
    let mut launcher = Launcher {
        head: Head::new(&counts, kvs, options.kill_on_failure),
        hosts: states.collect(),
        output: Output::new(size, options.tag_output),
        signals,
        input: Input::Wanted,
        interrupted: false,
        deadline: options.time_limit.map(|limit| (Instant::now() + limit, limit)),
    };
    launcher.launch(options, &job, &counts)?;
    launcher.serve()?;
    let code = launcher.head.exit_code();
    launcher.say_goodbye(agents);
    Ok(code)
}

impl Launcher {
    fn launch(&mut self, options: &Options, job: &str, counts: &[u32]) -> Result<(), LaunchError> {
        let directory = std::env::current_dir()
            .map_err(|error| LaunchError::new("no working directory", error))?;
        let env: Vec<_> = std::env::vars_os().collect();
        let mut first_rank = 0;
        for (node, &count) in counts.iter().enumerate() {
            let spec = LaunchSpec {
                job: job.to_owned(),
                host: self.hosts[node].name.clone(),
                size: counts.iter().sum(),
                first_rank,
                count,
                apps: options.apps.clone(),
                env: env.clone(),
                directory: directory.clone().into_os_string(),
                mca: sources::hand_on(&options.mca),
                bind: options.bind,
            };
            first_rank += count;
            self.order(node, Down::Launch(Box::new(spec)));
        }
        Ok(())
    }

    fn serve(&mut self) -> Result<(), LaunchError> {
        loop {
            self.settle();
            if self.hosts.iter().all(|host| host.drained) {
                self.output.end_all();
                if self.output.is_empty() {
                    return Ok(());
                }
            }
            let mut ready =
                self.wait().map_err(|error| LaunchError::new("cannot wait for events", error))?;
            for host in &mut self.hosts {
                if let Place::Here(node) = &mut host.place {
                    node.look(&mut ready);
                }
            }
            ready.into_iter().for_each(|token| self.ready(token));
            self.tick(Instant::now());
        }
    }

    fn tick(&mut self, now: Instant) {
        if let Some((_, limit)) = self.deadline.take_if(|(at, _)| *at <= now) {
            let mut orders = Orders::new();
            let why = format!("the job's time ({limit:?}) is over; ending it");
            self.head.give_up(why, OUT_OF_TIME, &mut orders);
            self.carry_out(orders);
        }
        for host in 0..self.hosts.len() {
            let beat = match &mut self.hosts[host].place {
                Place::Here(node) => {
                    node.tick(now);
                    Beat::Calm
                }
                Place::There(_, pulse) => pulse.tick(now),
                Place::Gone => Beat::Calm,
            };
            match beat {
                Beat::Calm => {}
                Beat::Ask => self.order(host, Down::Ping),
                Beat::Lost => self.lose(host, &LinkError::Silent),
            }
        }
    }

    fn wait(&mut self) -> Result<Vec<Token>, rustix::io::Errno> {
        let mut set = PollSet::default();
        let mut deadline: Option<Instant> = None;
        let mut sooner = |at: Option<Instant>| deadline = deadline.into_iter().chain(at).min();
        sooner(self.deadline.map(|(at, _)| at));
        set.readable(&self.signals, Token::Signals);
        let stdin = std::io::stdin();
        if self.input == Input::Wanted && may_read(&stdin) {
            set.readable(&stdin, Token::Stdin);
        }
        self.output.register(&mut set);
        for (index, host) in self.hosts.iter_mut().enumerate() {
            match &mut host.place {
                Place::Here(node) => {
                    sooner(node.deadline());
                    node.register(&mut set)?;
                }
                Place::There(link, pulse) => {
                    set.either(link, Token::Link(index), link.has_unsent());
                    sooner(Some(pulse.deadline()));
                }
                Place::Gone => {}
            }
        }
        set.wait(deadline)
    }

    fn ready(&mut self, token: Token) {
        match token {
            Token::Signals => self.pass_signals(),
            Token::Stdin => self.read_input(),
            Token::Sink(which) => self.output.ready(which),
            Token::Link(node) => self.read_link(node),
            _ => {
                for host in &mut self.hosts {
                    if let Place::Here(node) = &mut host.place {
                        node.ready(token);
                    }
                }
            }
        }
    }

    /// Carries what hosts report to the head and its orders to hosts, until neither has more.
    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for node in 0..self.hosts.len() {
                if let Place::Here(local) = &mut self.hosts[node].place {
                    let up = std::mem::take(&mut local.up);
                    quiet &= up.is_empty();
                    up.into_iter().for_each(|up| self.report(node, up));
                }
            }
            for (node, bytes) in self.output.taken() {
                self.order(node, Down::OutputTaken(bytes));
            }
            for stream in self.output.left() {
                self.carry_out(vec![(To::All, Down::OutputClosed(stream))]);
                quiet = false;
            }
            if quiet {
                return;
            }
        }
    }

    fn report(&mut self, node: usize, up: Up) {
        let mut orders = Orders::new();
        match up {
            Up::LaunchFailed { why, code } => self.head.give_up(why, code, &mut orders),
            Up::Request { rank, request } => self.head.request(node, rank, request, &mut orders),
            Up::Ended { rank, how } => self.head.ended(node, rank, how, &mut orders),
            Up::Output { rank, stream, data } => self.output.take(node, rank, stream, &data),
            Up::OutputEnd { rank } => self.output.end(rank),
            Up::StdinTaken if self.input == Input::Waiting => self.input = Input::Wanted,
            Up::StdinTaken => {}
            Up::Alive => {}
            Up::Looked { by, number, starved } => self.head.looked(node, by, number, starved),
            Up::StdinClosed => self.input = Input::Ended,
            Up::Drained => self.hosts[node].drained = true,
        }
        self.carry_out(orders);
    }

    fn carry_out(&mut self, orders: Orders) {
        for note in self.head.take_notes() {
            self.output.note(&note);
        }
        for (to, order) in orders {
            match to {
                To::Node(node) => self.order(node, order),
                To::All => (0..self.hosts.len()).for_each(|node| self.order(node, order.clone())),
            }
        }
    }

    fn order(&mut self, node: usize, order: Down) {
        let sent = match &mut self.hosts[node].place {
            Place::Here(local) => {
                local.apply(order);
                Ok(())
            }
            Place::There(link, _) => link.send(&order),
            Place::Gone => Ok(()),
        };
        if let Err(error) = sent {
            self.lose(node, &error);
        }
    }

    fn read_link(&mut self, node: usize) {
        let Place::There(link, pulse) = &mut self.hosts[node].place else { return };
        let mut messages: Vec<Up> = Vec::new();
        let result = link.receive(&mut messages).and_then(|()| link.flush());
        if !messages.is_empty() {
            pulse.heard(Instant::now());
        }
        messages.into_iter().for_each(|up| self.report(node, up));
        if let Err(error) = result {
            self.lose(node, &error);
        }
    }

    /// The connection to a host's daemon is lost: so are its ranks, for good (law 4).
    fn lose(&mut self, node: usize, error: &LinkError) {
        let host = &mut self.hosts[node];
        if matches!(host.place, Place::Gone) {
            return;
        }
        host.place = Place::Gone;
        if !std::mem::replace(&mut host.drained, true) {
            let note = format!("host {}: its daemon's connection is lost ({error})", host.name);
            self.output.note(&note);
        }
        let mut orders = Orders::new();
        self.head.node_lost(node, &mut orders);
        self.carry_out(orders);
    }

    fn pass_signals(&mut self) {
        for signal in self.signals.pending() {
            tracing::info!(?signal, "passed on to ranks");
            let order = match signal {
                // The second one means it.
                Signal::INT if std::mem::replace(&mut self.interrupted, true) => Down::Kill,
                Signal::TSTP => Down::Signal(Signal::STOP.as_raw()),
                signal => Down::Signal(signal.as_raw()),
            };
            self.carry_out(vec![(To::All, order)]);
            if signal == Signal::TSTP {
                let myself = rustix::process::getpid();
                let _ = rustix::process::kill_process(myself, Signal::STOP);
            }
        }
    }

    fn read_input(&mut self) {
        let mut data = vec![0u8; CHUNK];
        // Rank 0 is on the first host.
        match rustix::io::read(std::io::stdin(), &mut data) {
            Ok(0) => {
                self.input = Input::Ended;
                self.order(0, Down::StdinEnd);
            }
            Ok(length) => {
                data.truncate(length);
                self.input = Input::Waiting;
                self.order(0, Down::Stdin(data));
            }
            Err(rustix::io::Errno::INTR | rustix::io::Errno::AGAIN) => {}
            Err(error) => {
                tracing::warn!(%error, "standard input cannot be read");
                self.input = Input::Ended;
                self.order(0, Down::StdinEnd);
            }
        }
    }

    fn say_goodbye(mut self, agents: Agents) {
        for host in &mut self.hosts {
            if let Place::There(link, _) = &mut host.place {
                // A daemon that does not hear it sees the connection close.
                let _ = link.send(&Down::Shutdown);
            }
        }
        drop(self.hosts);
        agents.join();
    }
}

/// A terminal may be read only by the job in its foreground: reading stops any other.
fn may_read(stdin: &std::io::Stdin) -> bool {
    match rustix::termios::tcgetpgrp(stdin) {
        Ok(foreground) => foreground == rustix::process::getpgrp(),
        Err(_) => true,
    }
}
