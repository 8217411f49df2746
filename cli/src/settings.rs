//! The file with the settings that the services' clients have, too.

use std::fmt::Display;
use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::{Client, ClientBuilder};
use toml::{Table, Value};

use crate::args;
use crate::exit::{self, Failure};

/// What this program itself has to know of the file, and the rest.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    pub nodes: Vec<String>,
    pub name_prefix: Option<String>,
    pub ttl: Option<Duration>,
    others: Table,
}

impl Settings {
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let failed = |problem: &dyn Display| {
            Failure::new(exit::CONFIG, format!("{}: {problem}", file.display()))
        };
        let text = fs::read_to_string(file).map_err(|error| failed(&error))?;
        let settings = Self::of(&text).map_err(|problem| failed(&problem))?;
        // What is wrong with the others is said at once, too.
        let _ = settings.builder().map_err(|problem| failed(&problem))?;
        Ok(settings)
    }

    fn of(text: &str) -> Result<Self, String> {
        // The whole error has the line, and there may be a password in it.
        let mut others: Table = toml::from_str(text).map_err(|error| error.message().to_owned())?;
        if let Some(key) = ["cluster", "sentinel"].into_iter().find(|key| others.contains_key(*key))
        {
            return Err(format!(
                "this program takes no `{key}`: name it by a URL in `nodes`, redis+{key}://.."
            ));
        }
        Ok(Self {
            nodes: others.remove("nodes").map(urls).transpose()?.unwrap_or_default(),
            name_prefix: others.remove("name_prefix").map(prefix).transpose()?,
            ttl: others.remove("ttl").map(ttl).transpose()?,
            others,
        })
    }

    /// Returns a builder with those of the settings that are no fields.
    pub fn builder(&self) -> Result<ClientBuilder, String> {
        if self.others.is_empty() {
            return Ok(Client::builder());
        }
        self.others.clone().try_into().map_err(|error: toml::de::Error| error.message().to_owned())
    }
}

fn urls(value: Value) -> Result<Vec<String>, String> {
    let url = |value| match value {
        Value::String(url) => Ok(url),
        _ => Err("`nodes` is a URL, or a list of URLs".to_owned()),
    };
    match value {
        Value::Array(all) => all.into_iter().map(url).collect(),
        one => url(one).map(|url| vec![url]),
    }
}

fn prefix(value: Value) -> Result<String, String> {
    match value {
        Value::String(prefix) => Ok(prefix),
        _ => Err("`name_prefix` is a text".to_owned()),
    }
}

fn ttl(value: Value) -> Result<Duration, String> {
    let text = match value {
        Value::String(text) => text,
        Value::Integer(seconds) => seconds.to_string(),
        Value::Float(seconds) => seconds.to_string(),
        _ => return Err("`ttl` is a duration such as \"30s\", or a number of seconds".to_owned()),
    };
    args::duration(&text).map_err(|problem| format!("`ttl`: {problem}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_has_to_know_is_read() {
        let text = "nodes = 'redis://a'\nname_prefix = 'shop:'\nttl = '45s'\nsynced = 1";
        let settings = Settings::of(text).expect("settings");
        assert_eq!(settings.nodes, ["redis://a"]);
        assert_eq!(settings.name_prefix.as_deref(), Some("shop:"));
        assert_eq!(settings.ttl, Some(Duration::from_secs(45)));
        assert!(settings.builder().is_ok());
        let lists =
            Settings::of("nodes = ['redis://a', 'redis://b']\nttl = 1.5").expect("settings");
        assert_eq!(lists.nodes, ["redis://a", "redis://b"]);
        assert_eq!(lists.ttl, Some(Duration::from_millis(1500)));
    }

    #[test]
    fn what_is_wrong_is_named_without_the_line() {
        let problem = |text: &str| match Settings::of(text) {
            Ok(settings) => settings.builder().err().unwrap_or_default(),
            Err(problem) => problem,
        };
        for (text, part) in [
            ("nodes = 1", "`nodes`"),
            ("nodes = [1]", "`nodes`"),
            ("name_prefix = 1", "`name_prefix`"),
            ("ttl = true", "`ttl`"),
            ("ttl = 'soon'", "`ttl`"),
            ("restart_quarantin = '33s'", "restart_quarantin"),
            ("restart_quarantine = 'soon'", "restart_quarantine"),
            ("cluster = ['redis://a']", "redis+cluster://"),
            ("sentinel = 1", "redis+sentinel://"),
        ] {
            assert!(problem(text).contains(part), "{text}: {}", problem(text));
        }
        let broken = problem("nodes = 'redis://:se-cret@a'x");
        assert!(!broken.is_empty() && !broken.contains("se-cret"), "{broken}");
    }
}
