//! How lives begin: tokens and stamps, the library's endpoints, the answers to HELLO and WELCOME.

use crate::contact::Contact;
use crate::core::{Control, End, Parting};
use crate::endpoint::{Endpoint, Lines, Phase};
use crate::rail::Uct;
use crate::wire::{self, Greeting, Kind, split};
use ironweave_btl::secret::random;
use ironweave_btl::{Cause, Fault, Peer, Sink};
use ironweave_ffi_uct::{Status, UctError};
use std::time::{Instant, SystemTime};

const NO_PORT: UctError = UctError::Call { call: "endpoint", status: Status::NO_DEVICE };

impl Uct {
    /// A token for a new life with `peer`: nobody else can guess it.
    fn token(&self, peer: Peer) -> Result<u64, rustix::io::Errno> {
        Ok(wire::token(peer.0, u32::from_le_bytes(random()?)))
    }

    /// A stamp larger than any that this process, or an earlier one of this rank, gave.
    fn next_stamp(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = now.map_or(0, |now| now.as_nanos() as u64);
        self.stamp = nanos.max(self.stamp + 1);
        self.stamp
    }

    /// The library's endpoints towards a contact.
    pub(crate) fn lines(&mut self, contact: &Contact, life: u64) -> Result<Lines, UctError> {
        let (main, letters) = (self.main, self.letters);
        let port = self.port.as_mut().ok_or(NO_PORT)?;
        let (Some(letters), Some(there)) = (letters, &contact.letters) else {
            let main = port.connect(main, &contact.main, life)?;
            return Ok(Lines { main, letters: None, reach: None });
        };
        let line = port.connect(letters, there, life)?;
        let prepared = match self.queues {
            true => port.prepare_queue(main, life),
            false => port.prepare(main, life),
        };
        match prepared {
            Ok(main) => Ok(Lines { main, letters: Some(line), reach: None }),
            Err(error) => {
                port.close(line);
                Err(error)
            }
        }
    }

    /// Whether the library says that a contact can be reached.
    pub(crate) fn reaches(&self, contact: &Contact) -> bool {
        let Some(port) = &self.port else { return false };
        match (self.letters, &contact.letters) {
            (Some(letters), Some(there)) => {
                port.reaches(self.main, &contact.main) && port.reaches(letters, there)
            }
            (None, None) => port.reaches(self.main, &contact.main),
            _ => false,
        }
    }

    /// Begins a life.
    fn begin(
        &mut self,
        peer: Peer,
        phase: Phase,
        stamp: u64,
        contact: &Contact,
    ) -> Result<&mut Endpoint, Cause> {
        let token = self.token(peer).map_err(|_| Cause::Exhausted("randomness"))?;
        let lines = self.lines(contact, token).map_err(|error| {
            tracing::debug!(%peer, %error, "no uct endpoint");
            Cause::Unreachable
        })?;
        let ep = Endpoint::new(phase, token, stamp, lines, Instant::now());
        self.core.watched.push(token);
        Ok(self.core.seat(peer).ep.insert(Box::new(ep)))
    }

    /// The owner wants `peer`, which has no endpoint.
    pub(crate) fn dial(&mut self, peer: Peer, contact: &Contact) -> Result<(), Cause> {
        let stamp = self.next_stamp();
        let to_itself = peer.0 == self.core.who.me;
        let phase = if to_itself { Phase::Up } else { Phase::Dialing };
        let ep = self.begin(peer, phase, stamp, contact)?;
        ep.known = true;
        let life = ep.token;
        if to_itself {
            // Nobody has to prove anything.
            ep.theirs = life;
            self.core.risen.push(life);
        } else {
            self.greet(peer, Kind::Hello);
        }
        Ok(())
    }

    /// Greets a peer, or answers its greeting.
    pub(crate) fn greet(&mut self, peer: Peer, kind: Kind) {
        let Some(seat) = self.core.seats.get(peer.index()) else { return };
        let Some(ep) = &seat.ep else { return };
        let (stamp, theirs) = match kind {
            Kind::Hello => (ep.stamp, 0),
            _ => (seat.heard, ep.theirs),
        };
        let address = match (&self.port, ep.lines.letters) {
            (Some(port), Some(_)) => port.ep_address(ep.lines.main).unwrap_or_default(),
            _ => Vec::new(),
        };
        let greeting = Greeting::new(self.core.who, peer.0, seat.incarnation, ep.token, stamp);
        let message = greeting.encode(kind, theirs, &self.blob.contact, &address, &self.core.key);
        let control = Control { life: ep.token, letter: true, message };
        self.core.controls.push_back(control);
    }

    /// Connects our endpoint with the peer's, where that is how it is done.
    fn join(&mut self, peer: Peer, device: &[u8], address: &[u8]) -> Result<(), UctError> {
        let Some(ep) = self.core.seat(peer).ep.as_deref_mut().filter(|ep| !ep.joined) else {
            return Ok(());
        };
        self.port.as_mut().ok_or(NO_PORT)?.join(ep.lines.main, device, address)?;
        ep.joined = true;
        Ok(())
    }

    /// Answers a HELLO.
    #[cold]
    pub(crate) fn greeted<S: Sink>(&mut self, message: &[u8], sink: &mut S) {
        let key = self.core.key.clone();
        let decoded =
            split(message).and_then(|(_, kind, _, body)| Greeting::decode(kind, body, &key));
        let right = decoded.filter(|(greeting, contact, _)| {
            greeting.to.get() == self.core.who.me
                && greeting.incarnation.get() == self.core.who.incarnation
                && greeting.rail.get() == self.core.who.rail
                && greeting.from.get() != self.core.who.me
                && self.reaches(contact)
        });
        let Some((greeting, contact, address)) = right else {
            self.core.counters.rejected.add(1);
            return;
        };
        let (peer, token, stamp) =
            (Peer(greeting.from.get()), greeting.token.get(), greeting.stamp.get());
        let seat = self.core.seat(peer);
        if stamp < seat.heard || stamp <= seat.over {
            self.core.counters.rejected.add(1); // said long ago, and repeated by somebody
            return;
        }
        let (excluded, known) = (seat.excluded, seat.ep.as_deref().map(|ep| (ep.phase, ep.theirs)));
        let other = known.is_some_and(|(phase, theirs)| {
            theirs != token && !(phase == Phase::Dialing && theirs == 0)
        });
        if other && !excluded {
            // It would not greet if it were still there: its end of our life is over.
            let fault = Fault::rail(peer, Cause::Disconnected);
            self.end(peer, End::Fault(fault), sink);
        }
        let seat = self.core.seat(peer);
        if seat.ep.as_deref().is_some_and(|ep| matches!(ep.phase, Phase::Ending(_))) {
            return; // it greets again
        }
        seat.heard = stamp;
        seat.incarnation = greeting.own.get();
        let refusal = match (excluded, self.core.departed) {
            (true, _) => Some(Kind::RefuseExcluded),
            (_, Some(_)) => Some(Kind::RefuseFinalized),
            _ => None,
        };
        if let Some(kind) = refusal {
            self.refuse(kind, token, &contact);
            return;
        }
        let known = self.core.endpoint(peer).map(|ep| (ep.phase, ep.theirs));
        match known {
            Some((_, theirs)) if theirs == token => {} // said again
            Some((Phase::Dialing, 0)) => {
                // Both at once: either greeting serves.
                if let Some(ep) = self.core.seat(peer).ep.as_deref_mut() {
                    ep.theirs = token;
                }
            }
            _ => match self.begin(peer, Phase::Answering, stamp, &contact) {
                Ok(ep) => ep.theirs = token,
                Err(_) => return,
            },
        }
        if let Err(error) = self.join(peer, &contact.main.device, address) {
            tracing::debug!(%peer, %error, "a uct endpoint cannot be joined");
            let fault = Fault::rail(peer, Cause::Unreachable);
            return self.end(peer, End::Fault(fault), sink);
        }
        self.core.seat(peer).contact = contact;
        self.greet(peer, Kind::Welcome);
    }

    /// Tells somebody that it is not welcome, over an endpoint made for it.
    fn refuse(&mut self, kind: Kind, theirs: u64, contact: &Contact) {
        let Ok(lines) = self.lines(contact, 0) else { return };
        let word = wire::word(kind, 0, theirs).to_le_bytes().to_vec();
        let words = [(lines.for_letters(), word)].into();
        let until = Instant::now() + crate::close::LAST_WORDS;
        self.core.partings.push(Parting { life: 0, lines, words, until });
    }

    /// Takes the answer to our HELLO.
    #[cold]
    pub(crate) fn welcomed<S: Sink>(&mut self, peer: Peer, message: &[u8], sink: &mut S) {
        let Some((greeting, address)) = self.core.welcomed(peer, message) else { return };
        let device = self.core.seat(peer).contact.main.device.clone();
        let joined = self.join(peer, &device, address);
        let Some(ep) = self.core.seat(peer).ep.as_deref_mut() else { return };
        ep.theirs = greeting.token.get();
        let (up, life, theirs) = (ep.phase == Phase::Up, ep.token, ep.theirs);
        if let Err(error) = joined {
            tracing::debug!(%peer, %error, "a uct endpoint cannot be joined");
            let fault = Fault::rail(peer, Cause::Unreachable);
            return self.end(peer, End::Fault(fault), sink);
        }
        self.core.tell(Kind::Ready, life, theirs);
        if !up {
            self.core.come_up(peer, sink);
        }
    }
}
