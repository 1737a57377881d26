//! Routes: which rails are used for a peer, chosen by exclusivity among those whose addresses fit.

use super::peer::{Life, RailState};
use super::{Ob1, PmlError, RailId};
use ironweave_btl::{Address, Btl, EndpointState, Peer};

impl<B: Btl> Ob1<B> {
    /// Tells where a peer is, and starts to connect to it over the rails of the highest exclusivity that can; others are
    /// kept in reserve until one is up.
    ///
    /// # Errors
    /// [`PmlError::NoRoute`] when no rail reaches these addresses.
    pub fn add_peer(&mut self, peer: Peer, addresses: &[Address]) -> Result<(), PmlError> {
        let state = self.engine.peers.state(peer);
        if !matches!(state.life, Life::Alive | Life::CutOff) {
            return Ok(()); // operations with it tell
        }
        let mut candidates: Vec<(RailId, Address)> = Vec::new();
        for (rail, btl) in (0..).map(RailId).zip(&self.rails) {
            let ours = btl.address();
            let same = |a: &&Address| a.component == ours.component && a.rail == ours.rail;
            candidates.extend(addresses.iter().find(same).map(|a| (rail, a.clone())));
        }
        if self.connect_best(peer, candidates) || self.engine.peers.state(peer).has_hope() {
            self.engine.peers.state(peer).known = true;
            return Ok(());
        }
        Err(PmlError::NoRoute(peer))
    }

    /// Whether sends to the peer can be started; else they say [`PmlError::Unresolved`].
    #[must_use]
    pub fn knows_peer(&self, peer: Peer) -> bool {
        self.engine.peers.get(peer).is_some_and(|state| state.known)
    }

    /// Connects the candidates of the highest exclusivity that can be connected, and keeps those below. `false` when
    /// none can.
    pub(super) fn connect_best(
        &mut self,
        peer: Peer,
        mut candidates: Vec<(RailId, Address)>,
    ) -> bool {
        let exclusivity = |rail: RailId| self.engine.caps[usize::from(rail.0)].exclusivity;
        candidates.sort_by_key(|(rail, _)| std::cmp::Reverse(exclusivity(*rail)));
        let mut level = None;
        let mut connected = false;
        while let Some((rail, address)) = candidates.first().cloned() {
            let this = self.engine.caps[usize::from(rail.0)].exclusivity;
            if connected && level != Some(this) {
                break;
            }
            candidates.remove(0);
            let btl = &mut self.rails[usize::from(rail.0)];
            match btl.connect(peer, &address) {
                Ok(()) => {
                    (connected, level) = (true, Some(this));
                    let row = self.engine.peers.state(peer).rail_mut(rail);
                    row.address = Some(Box::new(address));
                    if row.state == RailState::Closed {
                        row.state = RailState::Connecting;
                    }
                    if btl.state(peer) == EndpointState::Up {
                        self.engine.up(rail, peer);
                    }
                }
                Err(fault) => tracing::debug!(%peer, rail = rail.0, %fault, "cannot connect"),
            }
        }
        self.engine.peers.state(peer).reserve = candidates;
        connected
    }
}
