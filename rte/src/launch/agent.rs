//! Launch agents: how a daemon gets onto another host (`ssh {host}`, `ip netns exec {host}`), and
//! the wait until each has connected back and proven itself.
//!
//! The secret and where to connect go through the agent's standard input, one line, never through
//! its arguments. The daemon is this same executable under the same path.

use super::link::{self, Link, Stranger, Verdict};
use super::pollset::{PollSet, Token};
use super::run::{LaunchError, Options};
use crate::params::Params;
use crate::pmi::text;
use crate::secret::{self, Secret};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process_group, pidfd_open};
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How long daemons have to report in.
const REPORT: Duration = Duration::from_secs(60);
/// How long agents have to end once their daemons have.
const LEAVE: Duration = Duration::from_secs(3);
/// Connections that have not proven themselves kept at once.
const MAX_STRANGERS: usize = 64;
/// The first word of the line a daemon is given.
pub const GREETING: &str = "ironweave-daemon-2";

/// The launch agents of a job.
#[derive(Debug, Default)]
pub struct Agents {
    agents: Vec<Agent>,
}

#[derive(Debug)]
struct Agent {
    node: usize,
    host: String,
    command: String,
    child: Child,
    exit: OwnedFd,
}

/// This host's name.
pub fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Starts a daemon on every host of `remote` (its index and name) and waits until all have reported.
///
/// # Errors
/// In words: no agent, an agent that ended early, a port in use, a daemon that never reported.
pub fn start_daemons(
    options: &Options,
    params: &Params,
    secret: &Secret,
    remote: &[(usize, String)],
) -> Result<(Agents, HashMap<usize, Link>), LaunchError> {
    let mut agents = Agents::default();
    if remote.is_empty() {
        return Ok((agents, HashMap::new()));
    }
    let listener = listen(options.port)?;
    let port = listener.local_addr().map_err(|e| LaunchError::new("no address", e))?.port();
    let addresses: Vec<_> =
        own_addresses().iter().map(|ip| SocketAddr::new(*ip, port).to_string()).collect();
    let patience = params.duration("rte_host_timeout");
    for (node, host) in remote {
        let line = format!(
            "{GREETING} {node} {} {} {}\n",
            text::encode(secret),
            patience.as_secs(),
            addresses.join(",")
        );
        agents.agents.push(Agent::start(*node, host, &options.agent, &line)?);
    }
    let links = agents.wait_for_daemons(&listener, secret, patience)?;
    Ok((agents, links))
}

fn listen(port: u16) -> Result<TcpListener, LaunchError> {
    let bound = TcpListener::bind(("::", port)).or_else(|error| match error.kind() {
        io::ErrorKind::AddrInUse => Err(error),
        _ => TcpListener::bind(("0.0.0.0", port)), // a host without IPv6
    });
    let listener = bound.map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            LaunchError(format!("port {port} is in use; give another one with --port, or none"))
        }
        _ => LaunchError::new(&format!("cannot listen on port {port}"), error),
    })?;
    listener.set_nonblocking(true).map_err(|error| LaunchError::new("cannot listen", error))?;
    Ok(listener)
}

/// The addresses a daemon may reach this host by, likely ones first. Link-local ones mean nothing
/// on another host.
fn own_addresses() -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> = ironweave_ffi::interfaces()
        .unwrap_or_default()
        .into_iter()
        .filter(|interface| interface.up)
        .filter_map(|interface| interface.address)
        .filter(|address| match address {
            IpAddr::V4(v4) => !v4.is_link_local(),
            IpAddr::V6(v6) => !v6.is_unicast_link_local(),
        })
        .collect();
    addresses.sort_by_key(|address| (address.is_loopback(), address.is_ipv6()));
    addresses
}

impl Agent {
    fn start(node: usize, host: &str, template: &str, line: &str) -> Result<Agent, LaunchError> {
        let exe = std::env::current_exe()
            .map_err(|error| LaunchError::new("cannot find this executable's path", error))?;
        let mut words: Vec<String> =
            template.split_whitespace().map(|word| word.replace("{host}", host)).collect();
        if words.is_empty() {
            return Err(LaunchError("--launch-agent is empty".into()));
        }
        if !template.contains("{host}") {
            words.push(host.to_owned());
        }
        let command = words.join(" ");
        let mut child = Command::new(&words[0])
            .args(&words[1..])
            .arg(exe)
            .arg("daemon")
            // Its group is not the terminal's: an interrupt reaches ranks through the daemon.
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::from(io::stderr()))
            .spawn()
            .map_err(|error| {
                LaunchError::new(&format!("cannot start launch agent `{command}`"), error)
            })?;
        if let Some(mut input) = child.stdin.take() {
            // An agent that does not read it is one that ended: seen below, with its exit code.
            let _ = input.write_all(line.as_bytes());
        }
        let exit = pidfd_open(Pid::from_child(&child), PidfdFlags::empty())
            .map_err(|error| LaunchError::new("cannot watch a launch agent", error))?;
        Ok(Agent { node, host: host.to_owned(), command, child, exit })
    }
}

impl Agents {
    fn wait_for_daemons(
        &mut self,
        listener: &TcpListener,
        secret: &Secret,
        patience: Duration,
    ) -> Result<HashMap<usize, Link>, LaunchError> {
        let deadline = Instant::now() + REPORT;
        let mut links: HashMap<usize, Link> = HashMap::new();
        let mut strangers: HashMap<usize, Stranger> = HashMap::new();
        let mut next = 0;
        let mut refused = None;
        while links.len() < self.agents.len() {
            let mut set = PollSet::default();
            set.readable(listener, Token::Listener);
            for (id, stranger) in &strangers {
                set.readable(stranger, Token::Stranger(*id));
            }
            for (index, agent) in self.agents.iter().enumerate() {
                if !links.contains_key(&agent.node) {
                    set.readable(&agent.exit, Token::Agent(index));
                }
            }
            let ready = set
                .wait(Some(deadline))
                .map_err(|error| LaunchError::new("cannot wait for daemons", error))?;
            for token in ready {
                match token {
                    Token::Listener => {
                        if let Some(stranger) = accept(listener)?
                            && strangers.len() < MAX_STRANGERS
                        {
                            strangers.insert(next, stranger);
                            next += 1;
                        }
                    }
                    Token::Stranger(id) => {
                        let Some(stranger) = strangers.remove(&id) else { continue };
                        match stranger.judge(secret, patience) {
                            Verdict::Waiting(stranger) => drop(strangers.insert(id, stranger)),
                            Verdict::Refused(why) => {
                                tracing::warn!(why, "a connection was refused");
                                refused = Some(why);
                            }
                            Verdict::Daemon(node, link) => {
                                let node = node as usize;
                                if self.agents.iter().any(|agent| agent.node == node) {
                                    links.entry(node).or_insert(link);
                                }
                            }
                        }
                    }
                    Token::Agent(index) => {
                        let agent = &mut self.agents[index];
                        // Its daemon's proof may have come in the same turn.
                        if !links.contains_key(&agent.node) {
                            return Err(agent.ended_early(refused));
                        }
                    }
                    _ => {}
                }
            }
            if Instant::now() >= deadline {
                let missing: Vec<_> = (self.agents.iter())
                    .filter(|agent| !links.contains_key(&agent.node))
                    .map(|agent| agent.host.as_str())
                    .collect();
                return Err(LaunchError(format!(
                    "no daemon reported from {} within {} s; can it reach this host?",
                    missing.join(", "),
                    REPORT.as_secs()
                )));
            }
        }
        Ok(links)
    }

    /// Waits for the agents to end after their daemons; ends those that do not.
    pub fn join(mut self) {
        let deadline = Instant::now() + LEAVE;
        for agent in &mut self.agents {
            let mut set = PollSet::default();
            set.readable(&agent.exit, Token::Agent(0));
            if set.wait(Some(deadline)).is_ok_and(|ready| !ready.is_empty()) {
                let _ = agent.child.wait();
            }
        }
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        for agent in &mut self.agents {
            if let Ok(None) = agent.child.try_wait() {
                let _ = kill_process_group(Pid::from_child(&agent.child), Signal::KILL);
                let _ = agent.child.wait();
            }
        }
    }
}

impl Agent {
    fn ended_early(&mut self, refused: Option<&'static str>) -> LaunchError {
        let status = match self.child.wait() {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        };
        let refused = refused
            .map_or_else(String::new, |why| format!("; a connection was refused because {why}"));
        LaunchError(format!(
            "host {}: launch agent `{}` ended ({status}) before its daemon reported{refused}",
            self.host, self.command
        ))
    }
}

fn accept(listener: &TcpListener) -> Result<Option<Stranger>, LaunchError> {
    let stream = match listener.accept() {
        Ok((stream, from)) => {
            tracing::debug!(%from, "a connection");
            stream
        }
        Err(error) if link::concerns_one_connection(&error) => return Ok(None),
        Err(error) => return Err(LaunchError::new("cannot accept connections", error)),
    };
    let nonce = secret::fresh().map_err(|error| LaunchError(error.to_string()))?;
    Ok(Stranger::greet(stream, nonce).ok())
}
