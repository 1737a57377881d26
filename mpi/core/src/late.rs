//! Failures of which the control plane learns a little later than everything else.
//!
//! What the launcher writes on the page that all processes of a host share each of them reads there. With more processes than cores they have to
//! do so one after the other, and each waits for those before it: so who has learned of a failure ends what waits for the dead, and goes on with
//! its program. That the control plane leaves out the dead, and tells neighbours, who read the same page, is put off for `PlaneConfig::page_first`, or
//! until anything is asked of the control plane: an agreement, a notice, a frame of another process. Where a job has several hosts nothing is
//! put off. It is as if the news had come that much later, which it may at any time; who waits for the control plane itself does not put it off.

use crate::Core;
use ironweave_btl::Btl;
use ironweave_ft::Nanos;

/// Calls of [`Core::progress`] between two looks at the time: what is put off must not cost more than it saves.
const LOOKS: u32 = 16;

/// What the control plane is to learn.
#[derive(Debug)]
pub(crate) struct Late {
    processes: Vec<u32>,
    until: Nanos,
    /// All processes of the job are on this host, and read the same page: on others they are told at once.
    on_one_host: bool,
}

impl Late {
    /// Nothing, in a job on hosts of these colours.
    pub fn nothing(hosts: Option<&[u32]>) -> Late {
        let on_one_host = hosts.is_some_and(|hosts| hosts.iter().all(|host| *host == hosts[0]));
        Late { processes: Vec::new(), until: 0, on_one_host }
    }

    /// When it is to learn, at the latest; `None`: there is nothing.
    pub fn until(&self) -> Option<Nanos> {
        (!self.processes.is_empty()).then_some(self.until)
    }
}

impl<B: Btl> Core<B> {
    /// Whether nothing that is under way here waits for the control plane.
    pub(crate) fn may_be_late(&self) -> bool {
        let quiet =
            self.late.on_one_host && !self.restless && !self.stepping && self.tasks.are_none();
        quiet && self.held.is_empty() && self.summonses.are_none() && !self.fenced
    }

    /// The control plane learns of the failure of `process` later.
    pub(crate) fn be_late(&mut self, process: u32, now: Nanos) {
        if self.late.processes.is_empty() {
            self.late.until = now.saturating_add(self.config.plane.page_first);
        }
        self.late.processes.push(process);
        self.wait_for_others();
    }

    /// Whether that is all there is to do, and not yet.
    pub(crate) fn is_late(&self, now: Nanos) -> bool {
        let alone = !self.restless && !self.pml.has_control();
        alone && self.late.until().is_some_and(|until| now < until)
    }

    /// Looks at the time again after some calls of `progress`, by the exact clock. Nothing else here moves on by being looked at.
    pub(crate) fn wait_for_others(&mut self) {
        self.restless = false;
        self.hurried = true;
        self.patience = LOOKS;
    }

    /// The control plane learns of everything now: to be called before anything is asked of it.
    #[inline]
    pub(crate) fn catch_up(&mut self, now: Nanos) {
        if !self.late.processes.is_empty() {
            self.learn_late(now);
        }
    }

    #[cold]
    fn learn_late(&mut self, now: Nanos) {
        let (processes, until) = (std::mem::take(&mut self.late.processes), self.late.until);
        self.restless = true;
        self.untold = true;
        self.take_controls(now);
        self.hear_board(true);
        for process in processes {
            // Then who reads the page has had the time for it.
            if now >= until {
                self.plane.failed(process, now);
            } else {
                self.plane.failed_by_page(process, now);
            }
        }
    }
}
