//! How lives begin: names, tokens and stamps, and the answer to a HELLO.

use crate::core::{End, GREETING_AT, REFUSE_EXCLUDED, REFUSE_FINALIZED};
use crate::endpoint::{Endpoint, Phase};
use crate::rail::Ofi;
use crate::wire::{Greeting, Kind};
use ironweave_btl::secret::random;
use ironweave_btl::{Cause, Fault, Peer, Sink};
use ironweave_ffi::ofi::{Errno, FiAddr};
use std::time::{Instant, SystemTime};

impl Ofi {
    /// A token for a new life with `peer`: nobody else can guess it.
    pub(crate) fn token(&self, peer: Peer) -> Option<u64> {
        let random = u64::from_le_bytes(random().ok()?);
        Some((random << 24) | u64::from(peer.0))
    }

    /// A stamp larger than any that this process, or an earlier one of this rank, gave.
    pub(crate) fn next_stamp(&mut self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let nanos = now.map_or(0, |now| now.as_nanos() as u64);
        self.stamp = nanos.max(self.stamp + 1);
        self.stamp
    }

    /// Where `peer` is, in the address vector. Where it was before, if it was restarted elsewhere, is forgotten later: its last life
    /// may not be over yet.
    pub(crate) fn resolve(&mut self, peer: Peer, name: &[u8]) -> Result<FiAddr, Errno> {
        match &self.core.place(peer).addr {
            Some((known, addr)) if known == name => return Ok(*addr),
            _ => {}
        }
        let port = self.port.as_mut().ok_or(Errno::NODEV)?;
        let addr = port.insert(name)?;
        let old = self.core.place(peer).addr.replace((name.to_vec(), addr));
        self.core.stale.extend(old.map(|(_, addr)| addr));
        Ok(addr)
    }

    /// Begins a life.
    pub(crate) fn begin(
        &mut self,
        peer: Peer,
        phase: Phase,
        stamp: u64,
        to: FiAddr,
    ) -> Option<&mut Endpoint> {
        let token = self.token(peer)?;
        let ep = Endpoint::new(phase, token, stamp, to, Instant::now());
        self.core.watched.push(token);
        let place = self.core.place(peer);
        Some(place.ep.insert(Box::new(ep)))
    }

    /// Answers a HELLO.
    #[cold]
    pub(crate) fn greeted<S: Sink>(&mut self, message: &[u8], sink: &mut S) {
        let decoded = Greeting::decode(Kind::Hello, &message[GREETING_AT..], &self.core.key);
        let right = decoded.filter(|(greeting, name)| {
            greeting.to.get() == self.core.who.me
                && greeting.incarnation.get() == self.core.who.incarnation
                && greeting.rail.get() == self.core.who.rail
                && greeting.from.get() != self.core.who.me
                && !name.is_empty()
        });
        let Some((greeting, name)) = right else {
            self.core.counters.rejected.add(1);
            return;
        };
        let (peer, token, stamp) =
            (Peer(greeting.from.get()), greeting.token.get(), greeting.stamp.get());
        let place = self.core.place(peer);
        if stamp < place.heard || stamp <= place.over {
            self.core.counters.rejected.add(1); // said long ago, and repeated by somebody
            return;
        }
        place.heard = stamp;
        place.incarnation = greeting.own.get();
        place.pid = greeting.pid.get();
        let refusal = match (place.excluded, self.core.departed) {
            (true, _) => Some(REFUSE_EXCLUDED),
            (_, Some(_)) => Some(REFUSE_FINALIZED),
            _ => None,
        };
        let Ok(to) = self.resolve(peer, name) else {
            self.core.counters.rejected.add(1);
            return;
        };
        if let Some(why) = refusal {
            self.core.tell(Kind::Refuse, 0, to, token, why);
            return;
        }
        let known = self.core.endpoint(peer).map(|ep| (ep.phase, ep.theirs));
        match known {
            Some((_, theirs)) if theirs == token => {} // said again
            Some((Phase::Dialing, 0)) => {
                // Both at once: either greeting serves.
                let ep = self.core.place(peer).ep.as_deref_mut();
                if let Some(ep) = ep {
                    ep.theirs = token;
                    ep.to = to;
                }
            }
            other => {
                if other.is_some() {
                    // It would not greet if it were still there: its end of our life is over.
                    let fault = Fault::rail(peer, Cause::Disconnected);
                    self.finish(peer, End::Fault(fault), sink);
                }
                match self.begin(peer, Phase::Answering, stamp, to) {
                    Some(ep) => ep.theirs = token,
                    None => return,
                }
            }
        }
        self.core.greet(peer, Kind::Welcome, &[]);
    }
}
