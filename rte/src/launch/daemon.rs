//! `ironweave daemon`: one host's part of a job, at the other end of the launcher's connection.
//! Started by a launch agent; learns on its standard input where to connect and the secret to prove
//! itself with. When the connection goes, its ranks go, and so does it (laws 4 and 8).

use super::agent::GREETING;
use super::link::{self, Link};
use super::messages::Down;
use super::node::Node;
use super::pollset::{PollSet, Token};
use super::run::LaunchError;
use super::signals::Signals;
use crate::pmi::text;
use crate::secret::{self, Secret};
use std::io::BufRead;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// How long one of the launcher's addresses may take to answer.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the launcher may take for each step of the handshake.
const HANDSHAKE: Duration = Duration::from_secs(20);

/// What the launcher says on standard input.
#[derive(Debug, PartialEq, Eq)]
struct Invitation {
    node: u32,
    secret: Secret,
    /// How long the launcher's host may be silent before it counts as lost.
    patience: Duration,
    addresses: Vec<SocketAddr>,
}

/// The daemon's whole life.
///
/// # Errors
/// In words: no invitation, no way to the launcher, or it does not hold the job's secret.
pub fn run() -> Result<(), LaunchError> {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .map_err(|error| LaunchError::new("cannot read the invitation", error))?;
    let invitation = parse(&line).ok_or_else(|| {
        LaunchError(
            "a daemon is started by `ironweave run`, which tells it where to connect".into(),
        )
    })?;
    // Signals to this host's part come from the launcher only.
    let mut signals = Signals::take_over()
        .map_err(|error| LaunchError::new("cannot take over signals", error))?;
    super::wake_up_fast();
    let mut link = connect(&invitation)?;
    let mut node = Node::new();
    let result = serve(&mut node, &mut link, &mut signals);
    node.kill_and_reap();
    result
}

fn serve(node: &mut Node, link: &mut Link, signals: &mut Signals) -> Result<(), LaunchError> {
    let lost =
        |error: link::LinkError| LaunchError::new("the launcher's connection is lost", error);
    loop {
        for up in std::mem::take(&mut node.up) {
            link.send(&up).map_err(lost)?;
        }
        let mut set = PollSet::default();
        set.readable(signals, Token::Signals);
        set.either(link, Token::Link(0), link.has_unsent());
        let deadline = node.deadline();
        let mut ready = (node.register(&mut set))
            .and_then(|()| set.wait(deadline))
            .map_err(|error| LaunchError::new("cannot wait for events", error))?;
        node.look(&mut ready);
        for token in ready {
            match token {
                Token::Signals => drop(signals.pending()),
                Token::Link(_) => {
                    let mut orders: Vec<Down> = Vec::new();
                    let result = link.receive(&mut orders).and_then(|()| link.flush());
                    for order in orders {
                        if matches!(order, Down::Shutdown) {
                            return Ok(());
                        }
                        node.apply(order);
                    }
                    result.map_err(lost)?;
                }
                token => node.ready(token),
            }
        }
        node.tick(Instant::now());
    }
}

fn parse(line: &str) -> Option<Invitation> {
    let mut words = line.split_whitespace();
    if words.next()? != GREETING {
        return None;
    }
    let node = words.next()?.parse().ok()?;
    let secret = text::decode(words.next()?)?.try_into().ok()?;
    let patience = Duration::from_secs(words.next()?.parse().ok()?);
    let addresses: Option<Vec<_>> =
        words.next()?.split(',').map(|address| address.parse().ok()).collect();
    Some(Invitation { node, secret, patience, addresses: addresses? })
}

fn connect(invitation: &Invitation) -> Result<Link, LaunchError> {
    let nonce = secret::fresh().map_err(|error| LaunchError(error.to_string()))?;
    let mut reasons = Vec::new();
    for address in &invitation.addresses {
        let met = TcpStream::connect_timeout(address, CONNECT).and_then(|stream| {
            let Invitation { node, secret, patience, .. } = invitation;
            link::prove_to_head(stream, secret, &nonce, *node, HANDSHAKE, *patience)
        });
        match met {
            Ok(link) => return Ok(link),
            Err(error) => reasons.push(format!("{address}: {error}")),
        }
    }
    Err(LaunchError(format!("cannot reach the launcher ({})", reasons.join("; "))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invitation_is_read_and_anything_else_refused() {
        let hex = "ab".repeat(32);
        let good = format!("{GREETING} 3 {hex} 9 10.0.0.1:5,[fd00::1]:5\n");
        let invitation = parse(&good).unwrap();
        assert_eq!((invitation.node, invitation.secret), (3, [0xab; 32]));
        assert_eq!(invitation.addresses.len(), 2);
        for wrong in [
            String::new(),
            "hello".into(),
            format!("{GREETING} 3 abcd 9 10.0.0.1:5"),
            format!("{GREETING} x {hex} 9 10.0.0.1:5"),
            format!("{GREETING} 3 {hex} 9 nowhere"),
            format!("{GREETING} 3 {hex} long 10.0.0.1:5"),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
    }
}
