//! The kinds of values a parameter takes and how each is read from text. Pure.

use std::time::Duration;

/// What values a parameter takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `true`/`false`, also `yes`/`no`, `on`/`off`, `1`/`0`.
    Flag,
    /// A whole number between the two, both included.
    Count(u64, u64),
    /// Bytes, with an optional unit of powers of 1024: `4096`, `64k`, `1MiB`.
    Size,
    /// A time with its unit: `250us`, `10ms`, `2s`, `1min`.
    Duration,
    /// One of these words.
    Choice(&'static [&'static str]),
    /// Comma-separated words, possibly none.
    List,
    /// Comma-separated components out of these to use, or `^` and those not to use.
    Selection(&'static [&'static str]),
}

/// A typed value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// A switch.
    Flag(bool),
    /// A count, or a size in bytes.
    Number(u64),
    /// A time.
    Duration(Duration),
    /// One of the words of a choice.
    Text(String),
    /// Words.
    List(Vec<String>),
    /// Components to use.
    Selection(Selection),
}

/// Which components are used, and in which order of preference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selection {
    chosen: Vec<&'static str>,
    /// By their names, not by leaving others out.
    named: bool,
}

impl Selection {
    /// Whether `component` is used.
    pub fn allows(&self, component: &str) -> bool {
        self.chosen.contains(&component)
    }

    /// Whether `component` was asked for by its name: for those that nobody gets by leaving others out.
    pub fn names(&self, component: &str) -> bool {
        self.named && self.allows(component)
    }

    /// The components used, in order.
    pub fn chosen(&self) -> &[&'static str] {
        &self.chosen
    }
}

impl Kind {
    /// Reads `text`; the error says what is taken.
    pub(super) fn read(self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        match self {
            Kind::Flag => match text.to_ascii_lowercase().as_str() {
                "true" | "yes" | "on" | "1" => Ok(Value::Flag(true)),
                "false" | "no" | "off" | "0" => Ok(Value::Flag(false)),
                _ => Err("takes true or false".into()),
            },
            Kind::Count(least, most) => match text.parse() {
                Ok(count) if (least..=most).contains(&count) => Ok(Value::Number(count)),
                _ => Err(format!("takes a whole number from {least} to {most}")),
            },
            Kind::Size => size(text)
                .map(Value::Number)
                .ok_or_else(|| "takes bytes, with an optional unit (4096, 64k, 1MiB)".into()),
            Kind::Duration => duration(text)
                .map(Value::Duration)
                .ok_or_else(|| "takes a time with its unit (250us, 10ms, 2s, 1min)".into()),
            Kind::Choice(words) => match words.iter().find(|word| **word == text) {
                Some(word) => Ok(Value::Text((*word).to_owned())),
                None => Err(format!("takes one of {}", words.join(", "))),
            },
            Kind::List => Ok(Value::List(words(text).map(str::to_owned).collect())),
            Kind::Selection(known) => selection(text, known).map(Value::Selection),
        }
    }

    /// What it takes, for `ironweave info`.
    pub fn describe(self) -> String {
        match self {
            Kind::Flag => "true or false".into(),
            Kind::Count(least, most) => format!("{least} to {most}"),
            Kind::Size => "bytes".into(),
            Kind::Duration => "time".into(),
            Kind::Choice(words) => words.join(" | "),
            Kind::List => "list".into(),
            Kind::Selection(known) => {
                format!("some of {}, or ^ and those to leave out", known.join(","))
            }
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty())
}

fn number_and_unit(text: &str) -> Option<(u64, String)> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    Some((number.parse().ok()?, unit.trim().to_ascii_lowercase()))
}

fn size(text: &str) -> Option<u64> {
    let (number, unit) = number_and_unit(text)?;
    let shift = match unit.as_str() {
        "" | "b" => 0,
        "k" | "kb" | "kib" => 10,
        "m" | "mb" | "mib" => 20,
        "g" | "gb" | "gib" => 30,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn duration(text: &str) -> Option<Duration> {
    let (number, unit) = number_and_unit(text)?;
    Some(match unit.as_str() {
        "us" => Duration::from_micros(number),
        "ms" => Duration::from_millis(number),
        "s" => Duration::from_secs(number),
        "min" => Duration::from_secs(number.checked_mul(60)?),
        "" if number == 0 => Duration::ZERO,
        _ => return None,
    })
}

fn selection(text: &str, known: &'static [&'static str]) -> Result<Selection, String> {
    let (excluded, list) = match text.strip_prefix('^') {
        Some(list) => (true, list),
        None => (false, text),
    };
    let mut named: Vec<&'static str> = Vec::new();
    for word in words(list) {
        let found = known.iter().find(|component| **component == word);
        let found = found.ok_or_else(|| {
            let hint =
                if word.starts_with('^') { " (one ^, in front of the whole list)" } else { "" };
            format!("no component {word:?}{hint}; there are {}", known.join(", "))
        })?;
        if !named.contains(found) {
            named.push(found);
        }
    }
    let chosen = match excluded {
        true => known.iter().copied().filter(|component| !named.contains(component)).collect(),
        false => named,
    };
    match chosen.is_empty() {
        true => Err(format!("leaves no component; there are {}", known.join(", "))),
        false => Ok(Selection { chosen, named: !excluded }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_durations_have_units() {
        assert_eq!(size("4096"), Some(4096));
        assert_eq!(size("64k"), Some(65536));
        assert_eq!(size("2 MiB"), Some(2 << 20));
        assert_eq!(size("99999999999999999999"), None);
        assert_eq!(size("18446744073709551615g"), None);
        assert_eq!(size("k"), None);
        assert_eq!(duration("10ms"), Some(Duration::from_millis(10)));
        assert_eq!(duration("10"), None);
        assert_eq!(duration("0"), Some(Duration::ZERO));
    }

    #[test]
    fn selections_include_or_exclude() {
        const KNOWN: &[&str] = &["shm", "tcp", "self"];
        let chosen = |text| selection(text, KNOWN).map(|s| s.chosen().to_vec());
        assert_eq!(chosen("tcp,self"), Ok(vec!["tcp", "self"]));
        assert_eq!(chosen("^tcp"), Ok(vec!["shm", "self"]));
        assert_eq!(chosen(" shm , shm "), Ok(vec!["shm"]));
        assert!(chosen("").is_err());
        assert!(chosen("^shm,tcp,self").is_err());
        assert!(chosen("shm,^tcp").unwrap_err().contains("one ^"));
        assert!(chosen("openib").unwrap_err().contains("shm, tcp, self"));
    }
}
