//! How many frames each side may send before the other has taken some: counting, without a device.
//!
//! A side never has more frames under way than the other promised buffers for. What the other says to have taken is not
//! believed beyond what was sent (law 9).

/// The credits of one connection, both ways. Numbers wrap.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credits {
    /// How many the peer promised buffers for …
    pub theirs: u32,
    /// … and how many we promised it.
    pub ours: u32,
    sent: u32,
    /// How many of those the peer is known to have taken.
    taken: u32,
    received: u32,
    /// How many of those the peer was told of.
    told: u32,
}

impl Credits {
    /// None used.
    pub fn new(ours: u32) -> Credits {
        Credits { ours, ..Credits::default() }
    }

    /// Whether the peer has buffers for so many more frames.
    #[inline]
    pub fn cover(&self, frames: u32) -> bool {
        self.sent.wrapping_sub(self.taken).saturating_add(frames) <= self.theirs
    }

    /// A frame goes to the peer, and says how many of its frames were taken.
    #[inline]
    pub fn use_one(&mut self) {
        self.sent = self.sent.wrapping_add(1);
        self.told = self.received;
    }

    /// The peer says to have taken so many frames. It can have taken no more than were sent; an older word than the last
    /// looks like more, and is dropped with it.
    #[inline]
    pub fn heard(&mut self, taken: u32) {
        if taken.wrapping_sub(self.taken) <= self.sent.wrapping_sub(self.taken) {
            self.taken = taken;
        }
    }

    /// A frame of the peer was taken and its buffer given back: whether it is time to tell.
    #[inline]
    pub fn take_one(&mut self) -> bool {
        self.received = self.received.wrapping_add(1);
        self.received.wrapping_sub(self.told) >= self.ours.div_ceil(2)
    }

    /// The number of the frame that goes to the peer next.
    #[inline]
    pub fn sent(&self) -> u32 {
        self.sent
    }

    /// Whether frame `number` went to the peer and is not known to have been taken.
    #[inline]
    pub fn is_out(&self, number: u32) -> bool {
        number.wrapping_sub(self.taken) < self.sent.wrapping_sub(self.taken)
    }

    /// How many frames the peer is known to have taken.
    #[inline]
    pub fn taken(&self) -> u32 {
        self.taken
    }

    /// Whether the peer is known to have taken any (or as many as bring the count to 0).
    #[inline]
    pub fn was_heard(&self) -> bool {
        self.taken != 0
    }

    /// How many frames of the peer were taken: the number of the one that is next.
    #[inline]
    pub fn received(&self) -> u32 {
        self.received
    }

    /// The peer was told of all of them.
    pub fn tell(&mut self) {
        self.told = self.received;
    }

    /// Whether it has yet to hear of some.
    pub fn untold(&self) -> bool {
        self.told != self.received
    }
}

impl std::fmt::Display for Credits {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Credits { theirs, ours: _, sent, taken, received, told } = self;
        write!(f, "sent {sent} taken {taken} of {theirs} credits, received {received} told {told}")
    }
}

#[cfg(test)]
impl Credits {
    /// Of `credits` each way, as if `start` frames had gone, long ago.
    pub fn both(credits: u32, start: u32) -> Credits {
        let (theirs, ours) = (credits, credits);
        Credits { theirs, ours, sent: start, taken: start, received: start, told: start }
    }
}

#[cfg(test)]
mod tests {
    use super::Credits;

    fn pair(credits: u32) -> [Credits; 2] {
        [(); 2].map(|()| Credits::both(credits, 0))
    }

    /// A frame from `ends[from]`, whose prefix is heard; whether the other end must tell by itself.
    fn frame(ends: &mut [Credits; 2], from: usize) -> bool {
        assert!(ends[from].cover(1), "a frame without a credit");
        let says = ends[from].received();
        ends[from].use_one();
        ends[1 - from].heard(says);
        ends[1 - from].take_one()
    }

    #[test]
    fn frames_both_ways_need_nothing_else_to_tell() {
        let mut ends = pair(4);
        for _ in 0..1000 {
            assert!(!frame(&mut ends, 0) && !frame(&mut ends, 1));
        }
    }

    #[test]
    fn frames_one_way_are_told_of_when_half_are_used_up() {
        let mut ends = pair(4);
        let mut tells = 0;
        for _ in 0..1000 {
            if frame(&mut ends, 0) {
                ends[1].tell();
                let taken = ends[1].received();
                ends[0].heard(taken);
                tells += 1;
            }
        }
        assert_eq!(tells, 500);
        assert!(!ends[1].untold());
    }

    #[test]
    fn a_peer_that_takes_nothing_stops_the_sender() {
        let mut credits = Credits::both(3, 0);
        (0..3).for_each(|_| credits.use_one());
        assert!(!credits.cover(1));
        credits.heard(1);
        assert!(credits.cover(1));
    }

    #[test]
    fn frames_are_out_until_they_are_known_to_be_taken() {
        let mut credits = Credits::both(4, u32::MAX - 1);
        let numbers: Vec<u32> = (0..3)
            .map(|_| {
                let number = credits.sent();
                credits.use_one();
                number
            })
            .collect();
        assert_eq!(numbers, [u32::MAX - 1, u32::MAX, 0]);
        credits.heard(u32::MAX);
        let out: Vec<bool> = numbers.iter().map(|&number| credits.is_out(number)).collect();
        assert_eq!(out, [false, true, true]);
        assert!(!credits.is_out(credits.sent()), "the next has yet to go");
    }

    #[test]
    fn what_cannot_be_true_and_what_is_old_is_not_believed() {
        let mut credits = Credits::both(3, u32::MAX - 1);
        (0..3).for_each(|_| credits.use_one());
        for lie in [2, 1000, u32::MAX - 2] {
            credits.heard(lie);
            assert!(!credits.cover(1), "{lie} was believed");
        }
        credits.heard(0);
        assert_eq!(credits.taken, 0);
        credits.heard(u32::MAX);
        assert_eq!(credits.taken, 0, "an older word took a newer one back");
    }
}
