//! The initiator's half of the handshake.

use crate::errno::Call;
use crate::guests::say;
use crate::secret::{HandshakeKey, Role};
use crate::wire::{
    CHALLENGE_MAGIC, Challenge, Hello, PROOF_MAGIC, Proof, VERDICT_MAGIC, VERDICT_REFUSED,
    VERDICT_WELCOME, VERDICT_YIELD, Verdict,
};
use rustix::fd::{AsFd, OwnedFd};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv, sockopt};
use zerocopy::{FromBytes, IntoBytes};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// The three-way handshake of TCP.
    Connecting,
    /// Said hello.
    Challenge,
    /// Proved.
    Verdict,
}

/// A connection that we opened and that is not up yet.
#[derive(Debug)]
pub struct Dial {
    pub socket: OwnedFd,
    hello: Hello,
    step: Step,
    buffer: [u8; size_of::<Challenge>()],
    got: usize,
}

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Hello {}→{} attempt {}", self.from, self.to, self.attempt)
    }
}

/// What became of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dialed {
    /// Not complete yet.
    Pending,
    /// TCP is connected and hello was said: only incoming bytes are interesting from now on.
    Greeted,
    /// Up; our attempts the acceptor has not seen yet but knows of are void, up to this one.
    Welcome { superseded: u64 },
    /// The peer's own connection to us is the one that stays.
    Yield,
    /// The peer does not want us.
    Refused,
    /// The other side is a stranger.
    Stranger,
    /// The other side closed.
    Closed,
    /// A call failed.
    Failed(Call, Errno),
}

impl Dial {
    pub fn new(socket: OwnedFd, hello: Hello) -> Self {
        let buffer = [0; size_of::<Challenge>()];
        Dial { socket, hello, step: Step::Connecting, buffer, got: 0 }
    }

    /// Goes on after the socket became ready.
    pub fn ready(&mut self) -> Option<Dialed> {
        (self.step == Step::Connecting).then(|| match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => match say(self.socket.as_fd(), self.hello.as_bytes()) {
                Ok(()) => {
                    self.step = Step::Challenge;
                    Dialed::Greeted
                }
                Err(errno) => Dialed::Failed(Call::Connect, errno),
            },
            Ok(Err(errno)) | Err(errno) => Dialed::Failed(Call::Connect, errno),
        })
    }

    /// Reads what the acceptor says.
    pub fn listen(&mut self, secret: &HandshakeKey) -> Dialed {
        loop {
            let wanted = match self.step {
                Step::Connecting => return Dialed::Pending,
                Step::Challenge => size_of::<Challenge>(),
                Step::Verdict => size_of::<Verdict>(),
            };
            let space = &mut self.buffer[self.got..wanted];
            match recv(&self.socket, space, RecvFlags::DONTWAIT) {
                Ok((_, 0)) => return Dialed::Closed,
                Ok((_, came)) => self.got += came,
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Dialed::Pending,
                Err(errno) => return Dialed::Failed(Call::Receive, errno),
            }
            if self.got < wanted {
                continue;
            }
            self.got = 0;
            if self.step == Step::Verdict {
                let verdict = Verdict::read_from_prefix(&self.buffer).expect("a shorter one").0;
                return judge(&verdict);
            }
            let challenge = Challenge::read_from_bytes(&self.buffer).expect("the buffer's length");
            if let Err(outcome) = self.prove(&challenge, secret) {
                return outcome;
            }
        }
    }

    fn prove(&mut self, challenge: &Challenge, secret: &HandshakeKey) -> Result<(), Dialed> {
        let (hello, nonce) = (&self.hello, &challenge.nonce);
        if challenge.magic != CHALLENGE_MAGIC
            || !secret.verify(Role::Acceptor, hello, nonce, &challenge.proof)
        {
            return Err(Dialed::Stranger);
        }
        let proof =
            Proof { magic: PROOF_MAGIC, proof: secret.prove(Role::Initiator, hello, nonce) };
        say(self.socket.as_fd(), proof.as_bytes())
            .map_err(|errno| Dialed::Failed(Call::Send, errno))?;
        self.step = Step::Verdict;
        Ok(())
    }
}

fn judge(verdict: &Verdict) -> Dialed {
    match verdict.verdict {
        _ if verdict.magic != VERDICT_MAGIC => Dialed::Stranger,
        VERDICT_WELCOME => Dialed::Welcome { superseded: verdict.superseded.get() },
        VERDICT_YIELD => Dialed::Yield,
        VERDICT_REFUSED => Dialed::Refused,
        _ => Dialed::Stranger,
    }
}
