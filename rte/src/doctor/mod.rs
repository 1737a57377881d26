//! `ironweave doctor`: looks at the machine the way a job would use it and says, in words an
//! operator can act on, what works, what works less well, and what does not.
//!
//! Each check tries the thing itself where it can (seals a memfd, reads another process's memory),
//! rather than trusting a version or a setting. Changes nothing, leaves nothing behind.

mod checks;

use std::fmt;

/// How a check turned out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// As it should be.
    Ok,
    /// Worth knowing; nothing to do.
    Note,
    /// Works, but slower or in fewer ways than it could.
    Warning,
    /// Jobs will not run as they should.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Level::Ok => "ok",
            Level::Note => "note",
            Level::Warning => "warn",
            Level::Error => "ERROR",
        })
    }
}

/// What was looked at, how it turned out, and what to do about it.
#[derive(Debug, Clone)]
pub struct Finding {
    /// What was looked at.
    pub subject: String,
    /// How it turned out.
    pub level: Level,
    /// What was found, and what to do.
    pub words: String,
}

impl Finding {
    fn new(subject: impl Into<String>, level: Level, words: impl Into<String>) -> Finding {
        Finding { subject: subject.into(), level, words: words.into() }
    }
}

/// Looks at everything. Takes a fraction of a second.
pub fn examine() -> Vec<Finding> {
    let mut findings = vec![
        checks::memfd(),
        checks::pidfd(),
        checks::abstract_sockets(),
        checks::cross_memory_attach(),
        checks::ptrace_scope(),
        checks::membarrier(),
        checks::dev_shm(),
        checks::memlock(),
        checks::descriptors(),
        checks::cores(),
        checks::parameters(),
    ];
    findings.extend(checks::interfaces());
    findings.extend(checks::libraries());
    findings.extend(checks::ofi());
    findings.extend(checks::uct());
    findings.extend(checks::rdma());
    findings
}

/// The findings as a table with a last line that sums up.
pub fn report(findings: &[Finding]) -> String {
    let width = findings.iter().map(|finding| finding.subject.len()).max().unwrap_or(0);
    let mut out = String::new();
    for Finding { subject, level, words } in findings {
        out.push_str(&format!("{level:<5}  {subject:<width$}  {words}\n"));
    }
    let count = |level| findings.iter().filter(|finding| finding.level == level).count();
    let (errors, warnings) = (count(Level::Error), count(Level::Warning));
    out.push_str(&format!("\n{errors} errors, {warnings} warnings\n"));
    out
}

/// Whether something is wrong enough for exit code 1.
pub fn has_errors(findings: &[Finding]) -> bool {
    findings.iter().any(|finding| finding.level == Level::Error)
}

/// The other side of the cross-memory check, run as `ironweave cma-probe PID ADDRESS`: reads a known
/// text from a process that is not its child, as ranks read from each other.
///
/// # Errors
/// In words: why the memory could not be read.
pub fn cma_probe(pid: i32, address: usize) -> Result<(), String> {
    checks::read_known_text(pid, address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_report_counts_and_errors_decide() {
        let mut findings = vec![
            Finding::new("a", Level::Ok, "fine"),
            Finding::new("longer", Level::Warning, "slow"),
        ];
        assert!(!has_errors(&findings));
        findings.push(Finding::new("b", Level::Error, "broken"));
        assert!(has_errors(&findings));
        let report = report(&findings);
        assert!(report.contains("ok     a       fine\n"), "{report}");
        assert!(report.ends_with("1 errors, 1 warnings\n"), "{report}");
    }
}
