//! Parameters as Open MPI users know them: a plain table of known names, typed values, and where
//! each value came from.
//!
//! Sources, later ones win: the default, a TOML file, the environment (`IRONWEAVE_<NAME>`),
//! `--mca NAME VALUE`. A name nobody knows is an error with a suggestion, never ignored (law 10).
//! Adding a parameter is adding a row to [`table::TABLE`].

pub mod sources;
pub mod table;
mod value;

pub use value::{Kind, Selection, Value};

use std::fmt;
use std::path::PathBuf;
use table::TABLE;

/// One known parameter.
#[derive(Debug, Clone, Copy)]
pub struct Def {
    /// Its name, as in `--mca NAME VALUE`; the environment has `IRONWEAVE_NAME`.
    pub name: &'static str,
    /// What values it takes.
    pub kind: Kind,
    /// Its default, written as a user would.
    pub default: &'static str,
    /// What it does, in a sentence or two.
    pub help: &'static str,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// The table.
    Default,
    /// This TOML file.
    File(PathBuf),
    /// The environment variable `IRONWEAVE_<NAME>`.
    Environment,
    /// `--mca` on the command line.
    CommandLine,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Default => f.write_str("default"),
            Source::File(path) => write!(f, "file {}", path.display()),
            Source::Environment => f.write_str("environment"),
            Source::CommandLine => f.write_str("command line"),
        }
    }
}

/// A parameter that does not exist, or a value it cannot take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ParamError {
    /// No parameter has this name.
    #[error("unknown parameter {name:?} ({source_name}){}", suggest(.suggestion))]
    Unknown {
        /// The name as given.
        name: String,
        /// Where it was given.
        source_name: String,
        /// The known name most like it.
        suggestion: Option<&'static str>,
    },
    /// The parameter does not take this value.
    #[error("{name} = {text:?} ({source_name}): {reason}")]
    Value {
        /// The parameter.
        name: &'static str,
        /// The value as given.
        text: String,
        /// Where it was given.
        source_name: String,
        /// What it takes instead.
        reason: String,
    },
    /// A configuration file that cannot be read.
    #[error("configuration file {path}: {reason}")]
    File {
        /// The file.
        path: String,
        /// Why.
        reason: String,
    },
}

fn suggest(suggestion: &Option<&'static str>) -> String {
    suggestion.map_or_else(String::new, |known| format!("; did you mean {known:?}?"))
}

/// A parameter's value and where it came from.
#[derive(Debug, Clone)]
pub struct Setting {
    /// The parameter.
    pub def: &'static Def,
    /// Its value.
    pub value: Value,
    /// The value as it was written.
    pub text: String,
    /// Where it came from.
    pub source: Source,
}

/// Every parameter's value, resolved once at start.
#[derive(Debug, Clone)]
pub struct Params {
    settings: Vec<Setting>,
}

impl Default for Params {
    /// The table's defaults, whatever files and environment say.
    fn default() -> Params {
        let settings = TABLE.iter().map(|def| Setting {
            def,
            value: def.kind.read(def.default).unwrap_or_else(|reason| {
                panic!("the default of {} is wrong: {reason}", def.name) // table's own test
            }),
            text: def.default.to_owned(),
            source: Source::Default,
        });
        Params { settings: settings.collect() }
    }
}

impl Params {
    /// Sets `name` to `text` on behalf of `source`.
    ///
    /// # Errors
    /// The name is unknown, or the value impossible.
    pub fn set(&mut self, name: &str, text: &str, source: Source) -> Result<(), ParamError> {
        let setting = self.settings.iter_mut().find(|setting| setting.def.name == name);
        let Some(setting) = setting else {
            return Err(ParamError::Unknown {
                name: name.to_owned(),
                source_name: source.to_string(),
                suggestion: nearest(name),
            });
        };
        setting.value = setting.def.kind.read(text).map_err(|reason| ParamError::Value {
            name: setting.def.name,
            text: text.to_owned(),
            source_name: source.to_string(),
            reason,
        })?;
        text.clone_into(&mut setting.text);
        setting.source = source;
        Ok(())
    }

    /// All settings, in the table's order.
    pub fn settings(&self) -> &[Setting] {
        &self.settings
    }

    /// The setting of `name`, if there is such a parameter.
    pub fn setting(&self, name: &str) -> Option<&Setting> {
        self.settings.iter().find(|setting| setting.def.name == name)
    }

    /// The value of a switch.
    ///
    /// # Panics
    /// As every typed getter here: `name` is not in the table or is of another kind, which is a
    /// mistake of the calling code that its first run shows.
    pub fn flag(&self, name: &str) -> bool {
        match self.value(name) {
            Value::Flag(value) => *value,
            other => panic!("parameter {name} is no switch but {other:?}"),
        }
    }

    /// The value of a count or of a size in bytes.
    ///
    /// # Panics
    /// See [`flag`](Self::flag).
    pub fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Number(value) => *value,
            other => panic!("parameter {name} is no number but {other:?}"),
        }
    }

    /// The value of a duration.
    ///
    /// # Panics
    /// See [`flag`](Self::flag).
    pub fn duration(&self, name: &str) -> std::time::Duration {
        match self.value(name) {
            Value::Duration(value) => *value,
            other => panic!("parameter {name} is no duration but {other:?}"),
        }
    }

    /// The value of a choice or of a free text.
    ///
    /// # Panics
    /// See [`flag`](Self::flag).
    pub fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(value) => value,
            other => panic!("parameter {name} is no text but {other:?}"),
        }
    }

    /// The elements of a list.
    ///
    /// # Panics
    /// See [`flag`](Self::flag).
    pub fn list(&self, name: &str) -> &[String] {
        match self.value(name) {
            Value::List(value) => value,
            other => panic!("parameter {name} is no list but {other:?}"),
        }
    }

    /// The value of a component selection (`shm,tcp` or `^tcp`).
    ///
    /// # Panics
    /// See [`flag`](Self::flag).
    pub fn selection(&self, name: &str) -> &Selection {
        match self.value(name) {
            Value::Selection(value) => value,
            other => panic!("parameter {name} is no selection but {other:?}"),
        }
    }

    fn value(&self, name: &str) -> &Value {
        match self.setting(name) {
            Some(setting) => &setting.value,
            None => panic!("no parameter {name}: add a row to params::table"),
        }
    }
}

/// The known name most like `name`: one it is the end of, or one a few slips away.
fn nearest(name: &str) -> Option<&'static str> {
    let end_of = |def: &&Def| name.len() > 3 && def.name.ends_with(name);
    let slips = |def: &&Def| strsim::damerau_levenshtein(name, def.name);
    let best = TABLE.iter().find(end_of).or_else(|| TABLE.iter().min_by_key(slips))?;
    (end_of(&best) || slips(&best) <= (name.len() / 4).max(2)).then_some(best.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_default_is_a_value_of_its_kind_and_names_are_unique() {
        let params = Params::default();
        assert_eq!(params.settings().len(), TABLE.len());
        for (index, def) in TABLE.iter().enumerate() {
            assert!(TABLE[..index].iter().all(|other| other.name != def.name), "{}", def.name);
            assert!(
                def.name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
            );
            assert!(def.help.ends_with('.'), "{}: help is a sentence", def.name);
        }
    }

    #[test]
    fn an_unknown_name_is_an_error_with_a_suggestion() {
        let mut params = Params::default();
        let error = params.set("btl_tcp_link", "2", Source::CommandLine).unwrap_err();
        assert_eq!(
            error.to_string(),
            "unknown parameter \"btl_tcp_link\" (command line); did you mean \"btl_tcp_links\"?"
        );
        let error = params.set("eager_limit", "2", Source::CommandLine).unwrap_err();
        assert!(error.to_string().contains("pml_ob1_eager_limit"));
        let error = params.set("qqqq", "2", Source::Environment).unwrap_err();
        assert_eq!(error.to_string(), "unknown parameter \"qqqq\" (environment)");
    }

    #[test]
    fn a_wrong_value_is_an_error_that_says_what_is_taken() {
        let mut params = Params::default();
        let error = params.set("btl_shm_single_copy", "knem", Source::Environment).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("auto, cma, none"), "{text}");
        assert!(params.set("btl_tcp_links", "many", Source::Environment).is_err());
        assert_eq!(params.setting("btl_tcp_links").unwrap().source, Source::Default);
    }

    /// As devices count, these would be for ever.
    #[test]
    fn endless_retries_and_timeouts_are_refused_with_words() {
        for (name, endless, taken) in [
            ("btl_verbs_retry_count", "7", "0 to 6"),
            ("btl_verbs_rnr_retry", "7", "0 to 6"),
            ("btl_verbs_timeout", "0", "1 to 31"),
            ("btl_verbs_timeout", "32", "1 to 31"),
        ] {
            let mut params = Params::default();
            let error = params.set(name, endless, Source::CommandLine).unwrap_err().to_string();
            assert!(error.contains(name) && error.contains(taken), "{error}");
            assert_eq!(
                params.setting(name).unwrap().source,
                Source::Default,
                "{name} stays finite"
            );
        }
    }

    #[test]
    fn a_setting_remembers_its_source() {
        let mut params = Params::default();
        params.set("pml_ob1_eager_limit", "8k", Source::Environment).unwrap();
        params.set("pml_ob1_eager_limit", "16KiB", Source::CommandLine).unwrap();
        assert_eq!(params.number("pml_ob1_eager_limit"), 16 * 1024);
        let setting = params.setting("pml_ob1_eager_limit").unwrap();
        assert_eq!((setting.text.as_str(), &setting.source), ("16KiB", &Source::CommandLine));
    }
}
