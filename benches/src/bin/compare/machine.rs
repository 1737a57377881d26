//! What the harness asks the machine: description for the record, loopback traffic, idle share, date. Changes nothing.

use std::fs;
use std::ops::AddAssign;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// CPU model, number of CPUs and kernel; no names of hosts or users.
pub fn description() -> String {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpuinfo
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split_once(": "));
    let cpus = cpuinfo.lines().filter(|line| line.starts_with("processor")).count();
    let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{}, {cpus} CPUs, kernel {}",
        model.map_or("unknown CPU", |(_, model)| model),
        kernel.trim()
    )
}

/// Bytes the loopback device of this network namespace has received; 0 if the kernel does not say.
/// Traffic to the host's own address on any device passes here too.
pub fn loopback_bytes() -> u64 {
    let devices = fs::read_to_string("/proc/net/dev").unwrap_or_default();
    let line = devices.lines().find_map(|line| line.trim_start().strip_prefix("lo:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or(0)
}

/// Watches who uses the processors: this program with what it starts, or others.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Ticks of all processors together.
    total: u64,
    /// Ticks that others than this program and its children used.
    others: u64,
}

impl Usage {
    /// Runs `work`, which must reap every child it starts, and adds what happened meanwhile.
    pub fn watch<R>(&mut self, work: impl FnOnce() -> R) -> R {
        let before = (processor_ticks(), own_ticks());
        let answer = work();
        if let (
            (Some((idle, total)), Some(own)),
            (Some((idle_after, total_after)), Some(own_after)),
        ) = (before, (processor_ticks(), own_ticks()))
        {
            let total = total_after.saturating_sub(total);
            let busy = total.saturating_sub(idle_after.saturating_sub(idle));
            self.total += total;
            self.others += busy.saturating_sub(own_after.saturating_sub(own));
        }
        answer
    }

    /// The share of the processors that others used, 0 to 1; 0 if nothing was watched.
    pub fn others(&self) -> f64 {
        if self.total == 0 { 0.0 } else { self.others as f64 / self.total as f64 }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, more: Self) {
        self.total += more.total;
        self.others += more.others;
    }
}

/// The share of the processors that others use now, watched for `time`.
pub fn busy_share(time: Duration) -> f64 {
    let mut usage = Usage::default();
    usage.watch(|| thread::sleep(time));
    usage.others()
}

/// Ticks of this program and of all children that have been waited for, by them or by us.
fn own_ticks() -> Option<u64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    // After the name in parentheses: utime, stime, cutime and cstime are fields 14 to 17 of proc(5), 11 to 14 here.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    fields.get(11..15)?.iter().map(|field| field.parse::<u64>().ok()).sum()
}

/// (idle, all) ticks of all processors.
fn processor_ticks() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let ticks: Vec<u64> = stat
        .lines()
        .next()?
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    // user nice system idle iowait irq softirq steal; guest time is already in user.
    Some((ticks.get(3)? + ticks.get(4)?, ticks.iter().take(8).sum()))
}

/// Today in UTC, `YYYY-MM-DD`.
pub fn today() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    date_of_day(i64::try_from(seconds / 86_400).unwrap_or(0))
}

/// The civil date of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
fn date_of_day(day: i64) -> String {
    // Years begin in March here, so that the leap day is the last day of its year; an era is 400 years, 146,097 days.
    let shifted = day + 719_468;
    let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::{Usage, date_of_day, own_ticks};

    #[test]
    fn what_a_child_uses_is_not_others() {
        // A child that works for a while: its ticks must be found again among our own.
        let before = own_ticks().expect("/proc/self/stat");
        let spin = "i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done";
        let status =
            std::process::Command::new("sh").args(["-c", spin]).status().expect("sh is there");
        assert!(status.success());
        assert!(own_ticks().expect("/proc/self/stat") > before);
        let mut usage = Usage::default();
        assert_eq!(usage.watch(|| 7), 7);
        assert!((0.0..=1.0).contains(&usage.others()));
    }

    #[test]
    fn dates() {
        for (day, date) in [
            (0, "1970-01-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (20_453, "2025-12-31"),
            (20_454, "2026-01-01"),
        ] {
            assert_eq!(date_of_day(day), date);
        }
    }
}
