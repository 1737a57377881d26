//! Which connections epoll watches, and which are read without asking it.
//!
//! A watched connection costs its *sender* a quarter of a microsecond a message: the kernel puts it on epoll's ready
//! list. So one that talks a lot is taken out, and put back when it cools or when the owner wants to sleep.

use crate::drive::NOW;
use crate::endpoint::{Link, Slot, Watch};
use crate::events::Subject;
use crate::tcp::Tcp;
use ironweave_btl::Peer;
use rustix::event::Timespec;
use rustix::event::epoll::{self, Event, EventFlags};
use std::time::{Duration, Instant};

impl Tcp {
    /// Changes what epoll tells about `peer`. Answers whether it does so now; if not, nothing changed.
    pub(crate) fn watch(&mut self, peer: Peer, want: Watch) -> bool {
        let slot = &mut self.slots[peer.index()];
        let Link::Up(stream) = &mut slot.link else { return false };
        let data = Subject::Endpoint { index: peer.0, generation: slot.generation }.data();
        let (epoll, socket) = (&self.epoll, &stream.socket);
        let flags = match want {
            Watch::ReadWrite => EventFlags::IN | EventFlags::OUT,
            Watch::None | Watch::Read => EventFlags::IN,
        };
        let changed = match (stream.watch, want) {
            (have, want) if have == want => Ok(()),
            (_, Watch::None) => epoll::delete(epoll, socket),
            (Watch::None, _) => epoll::add(epoll, socket, data, flags),
            (_, _) => epoll::modify(epoll, socket, data, flags),
        };
        if changed.is_ok() {
            stream.watch = want;
            stream.streak = 0;
        }
        changed.is_ok()
    }

    /// From now on `peer` is read without asking epoll.
    #[inline]
    pub(crate) fn warm(&mut self, peer: Peer) {
        if let Link::Up(stream) = &mut self.slots[peer.index()].link
            && !stream.hot
        {
            self.make_hot(peer);
        }
    }

    fn make_hot(&mut self, peer: Peer) {
        if self.hot.len() == self.hot.inline_size() {
            let coldest = self.hot[0];
            if let Some(Slot { link: Link::Up(stream), .. }) = self.slots.get_mut(coldest.index()) {
                let unwatched = stream.watch == Watch::None;
                stream.hot = false;
                if unwatched && !self.watch(coldest, Watch::Read) {
                    self.set_hot(coldest, true); // else nobody would ever read it
                    return;
                }
            }
            self.hot.remove(0);
        }
        self.hot.push(peer);
        self.set_hot(peer, true);
    }

    fn set_hot(&mut self, peer: Peer, hot: bool) {
        if let Link::Up(stream) = &mut self.slots[peer.index()].link {
            stream.hot = hot;
        }
    }

    /// Gets everything ready for a sleep on the epoll descriptor. Answers whether there is nothing to do before.
    pub(crate) fn watch_all(&mut self) -> bool {
        self.pace.lively();
        self.slept = true; // what wakes the owner may be any of them
        self.flush_all();
        let mut watched = true;
        for peer in self.hot.clone() {
            if matches!(&self.slots[peer.index()].link, Link::Up(up) if up.watch == Watch::None) {
                watched &= self.watch(peer, Watch::Read);
            }
        }
        for at in 0..self.writers.len() {
            watched &= self.watch(self.writers[at], Watch::ReadWrite);
        }
        if !watched || !self.done.is_empty() || !self.troubled.is_empty() {
            return false;
        }
        if !self.set_timer() {
            return false; // then the owner goes on polling
        }
        let mut event = [Event { flags: EventFlags::empty(), data: Subject::Timer.data() }];
        matches!(epoll::wait(&self.epoll, &mut event, Some(&NOW)), Ok(0))
    }

    /// Sets the timer to the next time limit, if there is one.
    fn set_timer(&self) -> bool {
        let connect = self.deadlines.front().map(|&(deadline, ..)| deadline);
        let guest = self.guests.next_deadline(self.config.connect_timeout);
        let next = [connect, guest, self.accept_after].into_iter().flatten().min();
        let wait = next.map_or(Duration::ZERO, |next| {
            next.saturating_duration_since(Instant::now()).max(Duration::from_millis(1))
        });
        let value = Timespec {
            tv_sec: i64::try_from(wait.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(wait.subsec_nanos()),
        };
        let once = rustix::time::Itimerspec { it_interval: NOW, it_value: value };
        let flags = rustix::time::TimerfdTimerFlags::empty();
        rustix::time::timerfd_settime(&self.timer, flags, &once).is_ok()
    }
}
