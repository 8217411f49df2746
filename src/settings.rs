//! Reads a client's settings from a configuration file.

use std::collections::BTreeMap;

use serde::de::{Error as _, IgnoredAny};
use serde::{Deserialize, Deserializer};

use crate::client::{Client, ClientBuilder};
use crate::config::{Deadlocks, LockOrder, PubSub, SelfWait};
use crate::serial::{Texts, Written};

/// Each field has the name of a method of [`ClientBuilder`].
///
/// Reading a field that may contain a password does not fail: TOML shows the line on which something failed.
#[derive(Deserialize)]
#[serde(expecting = "the settings of a client")]
struct Settings {
    nodes: Option<Texts>,
    sentinel: Option<Sentinel>,
    cluster: Option<Texts>,
    server_login: Option<Login>,
    server_tls: Option<bool>,
    server_database: Option<u32>,
    name: Option<String>,
    name_prefix: Option<String>,
    masters_name: Option<String>,
    ttl: Option<Written>,
    response_timeout: Option<Written>,
    connect_timeout: Option<Written>,
    unavailable_after: Option<Written>,
    handoff_window: Option<Written>,
    token_retention: Option<Written>,
    redisson_fencing: Option<bool>,
    restart_quarantine: Option<Written>,
    min_validity: Option<Written>,
    synced: Option<u32>,
    pubsub: Option<PubSub>,
    self_wait: Option<SelfWait>,
    warn_held_after: Option<Written>,
    deadlocks: Option<Deadlocks>,
    lock_order: Option<LockOrder>,
    log_findings: Option<bool>,
    #[serde(flatten)]
    unknown: BTreeMap<String, IgnoredAny>,
}

/// The arguments of [`ClientBuilder::sentinel`].
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Sentinel {
    Of { master: String, urls: Texts },
    Odd(IgnoredAny),
}

/// The arguments of [`ClientBuilder::server_login`].
#[derive(Deserialize)]
#[serde(untagged, deny_unknown_fields)]
enum Login {
    Of { user: String, password: String },
    Odd(IgnoredAny),
}

const NO_SENTINEL: &str = "`sentinel` needs a master's name and the URLs of its Sentinels: a map with `master` and `urls`";
const NO_LOGIN: &str =
    "`server_login` needs a user and a password: a map with the texts `user` and `password`";

/// Calls the methods for the settings that are present.
macro_rules! apply {
    ($builder:ident, $settings:ident: $($plain:ident)*; $($urls:ident)*; $($duration:ident)*) => {
        $(if let Some(value) = $settings.$plain { $builder = $builder.$plain(value); })*
        $(if let Some(texts) = $settings.$urls {
            let named = |problem| D::Error::custom(format!("{}: {problem}", stringify!($urls)));
            $builder = $builder.$urls(texts.list().map_err(named)?);
        })*
        $(if let Some(written) = $settings.$duration {
            let named = |problem| D::Error::custom(format!("{}: {problem}", stringify!($duration)));
            $builder = $builder.$duration(written.duration().map_err(named)?);
        })*
    };
}

/// Reads a map whose keys are the names of this type's methods, except `address_map`, `client_certificate`, `monitor`,
/// `root_certificates` and `runtime`, which must be called.
///
/// * A duration is a text such as `"30s"`, `"500ms"` or `"2m"`, with one of the units us, ms, s, m, h and d; or a number of
///   seconds.
/// * `nodes`, `cluster` and the `urls` of `sentinel` are a list, or one URL.
/// * Methods with two arguments have a map: `sentinel` has `master` and `urls`, and `server_login` has `user` and `password`.
///
/// Unknown keys are an error; [`connect`](ClientBuilder::connect) refuses values out of range. An error repeats nothing of a
/// login or of a URL, but that of a file that is no TOML shows a line of it: log its `message()`. The page
/// [settings](crate::docs::settings) has a file in TOML and one in YAML.
impl<'de> Deserialize<'de> for ClientBuilder {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let settings = Settings::deserialize(from)?;
        if let Some(key) = settings.unknown.keys().next() {
            return Err(D::Error::custom(format!("unknown field `{key}`: it is no setting")));
        }
        let mut builder = Client::builder();
        builder = match settings.sentinel {
            Some(Sentinel::Of { master, urls }) => {
                builder.sentinel(master, urls.list().map_err(|_| D::Error::custom(NO_SENTINEL))?)
            }
            Some(Sentinel::Odd(_)) => return Err(D::Error::custom(NO_SENTINEL)),
            None => builder,
        };
        builder = match settings.server_login {
            Some(Login::Of { user, password }) => builder.server_login(user, password),
            Some(Login::Odd(_)) => return Err(D::Error::custom(NO_LOGIN)),
            None => builder,
        };
        apply!(
            builder, settings:
            server_tls server_database name name_prefix masters_name redisson_fencing synced pubsub
            self_wait deadlocks lock_order log_findings;
            nodes cluster;
            ttl response_timeout connect_timeout unavailable_after handoff_window token_retention
            restart_quarantine min_validity warn_held_after
        );
        Ok(builder)
    }
}
