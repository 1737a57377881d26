//! What the harness asks the machine: description for the record, loopback traffic, idle share, date. Changes one thing
//! only, and only if told to: this session's share of the processor.

use std::fs;
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

/// The share of processor time that somebody uses, 0 to 1, watched for `time`; `None` if the kernel does not say.
pub fn busy_share(time: Duration) -> Option<f64> {
    let (idle, total) = processor_ticks()?;
    thread::sleep(time);
    let (idle_after, total_after) = processor_ticks()?;
    let total = total_after.checked_sub(total).filter(|ticks| *ticks > 0)?;
    Some(1.0 - idle_after.saturating_sub(idle) as f64 / total as f64)
}

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

/// Raises this session's share of the processor against other sessions, as the measured programs do for theirs.
pub fn raise_autogroup() -> bool {
    fs::write("/proc/self/autogroup", "-19").is_ok()
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
    use super::date_of_day;

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
