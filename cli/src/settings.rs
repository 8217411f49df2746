//! The file with the settings that the services' clients have, too.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::Duration;

use leasehold::{Client, ClientBuilder};
use toml::{Spanned, Table, Value};

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
        let shown = format!("--settings {}", file.display());
        let text = fs::read_to_string(file)
            .map_err(|error| Failure::new(exit::CONFIG, format!("{shown}: {error}")))?;
        Self::of(&text).map_err(|problem| Failure::new(exit::CONFIG, format!("{shown}, {problem}")))
    }

    /// Reads the text of such a file. A problem begins with the number of its line.
    fn of(text: &str) -> Result<Self, String> {
        let at = |offset: usize, problem: &str| {
            let ends = text.bytes().take(offset).filter(|byte| *byte == b'\n').count();
            format!("line {}: {problem}", ends + 1)
        };
        let all: BTreeMap<Spanned<String>, Value> = toml::from_str(text).map_err(|error| {
            // The whole error has the text of the line, and there may be a password in it.
            at(error.span().map_or(0, |span| span.start), error.message())
        })?;
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort_by_key(|(key, _)| key.span().start);
        let mut settings = Self::default();
        for (key, value) in all {
            let start = key.span().start;
            settings.add(key.into_inner(), value).map_err(|problem| at(start, &problem))?;
        }
        Ok(settings)
    }

    fn add(&mut self, key: String, value: Value) -> Result<(), String> {
        match key.as_str() {
            "nodes" => self.nodes = urls(value)?,
            "name_prefix" => self.name_prefix = Some(prefix(value)?),
            "ttl" => self.ttl = Some(ttl(value)?),
            "cluster" | "sentinel" => {
                return Err(format!(
                    "this program takes no `{key}`: name it by a URL in `nodes`, redis+{key}://.."
                ));
            }
            _ => {
                let alone = Table::from_iter([(key, value)]);
                // What is wrong with it is said at once.
                let _ = builder_with(&alone)?;
                self.others.extend(alone);
            }
        }
        Ok(())
    }

    /// Returns a builder with those of the settings that are no fields.
    pub fn builder(&self) -> Result<ClientBuilder, String> {
        if self.others.is_empty() {
            return Ok(Client::builder());
        }
        builder_with(&self.others)
    }
}

fn builder_with(settings: &Table) -> Result<ClientBuilder, String> {
    settings.clone().try_into().map_err(|error: toml::de::Error| error.message().to_owned())
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
    fn what_is_wrong_is_named_with_its_line_but_without_the_text_of_it() {
        let problem = |text: &str| Settings::of(text).err().unwrap_or_default();
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
        for (text, line) in [
            ("nodes = 'redis://:se-cret@a'x", "line 1: "),
            ("synced = 1\n\nnodes = 'redis://:se-cret@a'x\nsynced = 2\n", "line 3: "),
            ("# a\r\nttl = 'soon'\r\nnodes = 'redis://:se-cret@a'", "line 2: `ttl`"),
            ("nodes = 'redis://:se-cret@a'\n\nzzz = 1\naaa = 1", "line 3: "),
            ("nodes = 'redis://:se-cret@a'\nsynced = 'one'", "line 2: "),
            ("synced = 1\n[server_login]\nuser = 'u'\npasswrd = 'se-cret'", "line 2: "),
        ] {
            let told = problem(text);
            assert!(told.starts_with(line) && !told.contains("se-cret"), "{text}: {told}");
        }
    }
}
