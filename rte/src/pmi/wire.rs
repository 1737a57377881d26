//! The PMI-1 wire: one line a command, `cmd=NAME key=value key=value …\n`.
//!
//! Pure functions over bytes that may be garbage (law 9): nothing here allocates more than the line
//! given to it, and every failure is a typed error. Spaces separate fields, so a value normally has
//! none; a word without `=` belongs to the value before it (`msg=no such key`).
//! Lines beginning with `mcmd=` open a block closed by a line `endcmd` (spawn).

use std::str::Utf8Error;

/// The longest line taken from a peer, newline included. Generous: keys and values together stay
/// under 6 KiB with every known process manager.
pub const MAX_LINE: usize = 64 * 1024;

/// Why a line is not a command.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WireError {
    /// A line of more than [`MAX_LINE`] bytes.
    #[error("a line of {0} bytes, longer than {MAX_LINE}")]
    TooLong(usize),
    /// Not text.
    #[error("a line that is not text: {0}")]
    NotText(#[from] Utf8Error),
    /// The line does not begin with `cmd=` or `mcmd=`.
    #[error("a line that does not begin with cmd=: {0:?}")]
    NoCommand(String),
}

/// One command or reply: its name and its fields in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command<'a> {
    name: &'a str,
    block: bool,
    fields: Vec<(&'a str, &'a str)>,
}

impl<'a> Command<'a> {
    /// The value of `cmd=`.
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Whether this line opens an `mcmd=` block.
    pub fn opens_block(&self) -> bool {
        self.block
    }

    /// The value of the first field called `key`.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        self.fields.iter().find(|(name, _)| *name == key).map(|(_, value)| *value)
    }

    /// The value of `key` as a number.
    pub fn number<T: std::str::FromStr>(&self, key: &str) -> Option<T> {
        self.get(key)?.parse().ok()
    }
}

/// Reads one line (with or without its newline).
///
/// # Errors
/// The line is too long, not UTF-8, or not a command.
pub fn parse(line: &[u8]) -> Result<Command<'_>, WireError> {
    if line.len() > MAX_LINE {
        return Err(WireError::TooLong(line.len()));
    }
    let text = std::str::from_utf8(line)?.trim_matches(|c| matches!(c, '\n' | '\r' | ' ' | '\0'));
    let (name, rest) = text.split_once(' ').unwrap_or((text, ""));
    let (block, name) = match (name.strip_prefix("cmd="), name.strip_prefix("mcmd=")) {
        (Some(name), _) => (false, name),
        (_, Some(name)) => (true, name),
        _ => return Err(WireError::NoCommand(text.chars().take(80).collect())),
    };
    Ok(Command { name, block, fields: fields(rest) })
}

/// Splits `key=value key=value …`; a word without `=` extends the value before it.
fn fields(text: &str) -> Vec<(&str, &str)> {
    let mut fields: Vec<(&str, &str)> = Vec::new();
    let mut value_start = 0;
    let mut at = 0;
    for word in text.split(' ') {
        let start = at;
        at += word.len() + 1;
        match word.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                value_start = start + key.len() + 1;
                fields.push((key, value));
            }
            _ if word.is_empty() => {}
            _ => {
                if let Some((_, value)) = fields.last_mut() {
                    *value = &text[value_start..start + word.len()];
                }
            }
        }
    }
    fields
}

/// Ranks as text, `0-3,7`: runs of consecutive ones, in the order given.
pub fn write_ranks(ranks: &[u32]) -> String {
    let mut runs: Vec<(u32, u32)> = Vec::new();
    for &rank in ranks {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => runs.push((rank, rank)),
        }
    }
    let run = |&(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(run).collect::<Vec<_>>().join(",")
}

/// Reads what [`write_ranks`] wrote; `None` unless all of them are below `size`, and not more than so many.
pub fn read_ranks(text: &str, size: u32) -> Option<Vec<u32>> {
    let mut ranks = Vec::new();
    for run in text.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        let (first, last): (u32, u32) = (first.parse().ok()?, last.parse().ok()?);
        if last >= size || ranks.len() >= size as usize {
            return None;
        }
        ranks.extend(first..=last);
    }
    (ranks.len() <= size as usize).then_some(ranks)
}

/// Cuts a byte stream into lines; holds at most one partial line of [`MAX_LINE`] bytes.
#[derive(Debug, Default)]
pub struct Lines {
    held: Vec<u8>,
    taken: usize,
}

impl Lines {
    /// Adds bytes as they arrive from the socket.
    pub fn push(&mut self, bytes: &[u8]) {
        self.held.drain(..self.taken);
        self.taken = 0;
        self.held.extend_from_slice(bytes);
    }

    /// Whether [`next_line`](Self::next_line) has something to say: a whole line, or an error.
    pub fn has_line(&self) -> bool {
        let rest = &self.held[self.taken..];
        rest.len() >= MAX_LINE || rest.contains(&b'\n')
    }

    /// The next whole line, without its newline.
    ///
    /// # Errors
    /// The line, or what is there of it, is longer than [`MAX_LINE`]; the stream is unusable then.
    pub fn next_line(&mut self) -> Result<Option<&[u8]>, WireError> {
        let rest = &self.held[self.taken..];
        let end = rest.iter().position(|&byte| byte == b'\n');
        let length = end.unwrap_or(rest.len());
        if length >= MAX_LINE {
            return Err(WireError::TooLong(length));
        }
        Ok(end.map(|end| {
            let start = self.taken;
            self.taken += end + 1;
            &self.held[start..start + end]
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn commands_of_real_launchers_are_read() {
        let get = parse(b"cmd=get kvsname=kvs_1_0 key=PMI_process_mapping\n").unwrap();
        assert_eq!(get.name(), "get");
        assert_eq!(get.get("key"), Some("PMI_process_mapping"));
        let result = parse(b"cmd=get_result rc=0 msg=success value=(vector,(0,1,4))\n").unwrap();
        assert_eq!(result.get("value"), Some("(vector,(0,1,4))"));
        assert_eq!(result.number::<i32>("rc"), Some(0));
        let failed = parse(b"cmd=get_result rc=-1 msg=key not found value=unknown").unwrap();
        assert_eq!(failed.get("msg"), Some("key not found"));
        let spawn = parse(b"mcmd=spawn\n").unwrap();
        assert!(spawn.opens_block());
        assert_eq!(parse(b"cmd=put value=a==b").unwrap().get("value"), Some("a==b"));
    }

    #[test]
    fn lines_that_are_no_command_are_refused() {
        assert!(matches!(parse(b"hello"), Err(WireError::NoCommand(_))));
        assert!(matches!(parse(b""), Err(WireError::NoCommand(_))));
        assert!(matches!(parse(b"cmd=\xff\xfe"), Err(WireError::NotText(_))));
        assert_eq!(parse(&vec![b'a'; MAX_LINE + 1]), Err(WireError::TooLong(MAX_LINE + 1)));
    }

    #[test]
    fn an_endless_line_is_refused_before_it_is_held() {
        let mut lines = Lines::default();
        lines.push(&vec![b'a'; MAX_LINE]);
        assert!(lines.next_line().is_err());
    }

    #[test]
    fn ranks_that_are_not_there_are_refused() {
        assert_eq!(write_ranks(&[0, 1, 2, 7, 5, 6]), "0-2,7,5-6");
        assert_eq!(read_ranks("0-2,7,5-6", 8), Some(vec![0, 1, 2, 7, 5, 6]));
        for wrong in ["", "8", "0-8", "1,", "-1", "x", "0-3,0-3,0-3", "0-4294967295"] {
            assert_eq!(read_ranks(wrong, 8), None, "{wrong:?}");
        }
    }

    proptest! {
        #[test]
        fn ranks_written_are_ranks_read(ranks in proptest::collection::vec(0u32..300, 1..300)) {
            prop_assert_eq!(read_ranks(&write_ranks(&ranks), 300), Some(ranks));
        }

        #[test]
        fn garbage_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(command) = parse(&bytes) {
                prop_assert!(command.get("").is_none());
                let total: usize = command.fields.iter().map(|(k, v)| k.len() + v.len()).sum();
                prop_assert!(total <= bytes.len());
            }
        }

        #[test]
        fn fields_written_are_fields_read(
            name in "[a-z_]{1,20}",
            fields in proptest::collection::vec(("[a-z]{1,8}", "[!-~&&[^=]]{0,40}"), 0..6),
        ) {
            let mut line = format!("cmd={name}");
            for (index, (key, value)) in fields.iter().enumerate() {
                line.push_str(&format!(" {key}{index}={value}"));
            }
            line.push('\n');
            let command = parse(line.as_bytes()).unwrap();
            prop_assert_eq!(command.name(), name);
            for (index, (key, value)) in fields.iter().enumerate() {
                prop_assert_eq!(command.get(&format!("{key}{index}")), Some(value.as_str()));
            }
        }

        #[test]
        fn lines_survive_any_cut(
            lines in proptest::collection::vec("[ -~]{0,30}", 0..8),
            cut in 1usize..7,
        ) {
            let stream: String = lines.iter().map(|line| format!("{line}\n")).collect();
            let mut cutter = Lines::default();
            let mut seen = Vec::new();
            for piece in stream.as_bytes().chunks(cut) {
                cutter.push(piece);
                while let Some(line) = cutter.next_line().unwrap() {
                    seen.push(String::from_utf8(line.to_vec()).unwrap());
                }
            }
            prop_assert_eq!(seen, lines);
        }
    }
}
