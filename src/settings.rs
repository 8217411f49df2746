//! Reads a client's settings from a configuration file.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};

use crate::client::{Client, ClientBuilder};
use crate::config::{Deadlocks, LockOrder, PubSub, SelfWait};
use crate::serial::{Texts, Written};

/// Each field has the name of a method of [`ClientBuilder`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "the settings of a client")]
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
}

/// The arguments of [`ClientBuilder::sentinel`]. It is untagged so that an error repeats nothing of what was written, which may
/// be a password.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "`sentinel` needs a master's name and the URLs of its Sentinels: a map with `master` and `urls`"
)]
enum Sentinel {
    Of { master: String, urls: Texts },
}

/// The arguments of [`ClientBuilder::server_login`], untagged for the same reason.
#[derive(Deserialize)]
#[serde(
    untagged,
    deny_unknown_fields,
    expecting = "`server_login` needs a user and a password: a map with the texts `user` and `password`"
)]
enum Login {
    Of { user: String, password: String },
}

/// Calls the methods for the settings that are present.
macro_rules! apply {
    ($builder:ident, $settings:ident: $($plain:ident)*; $($urls:ident)*; $($duration:ident)*) => {
        $(if let Some(value) = $settings.$plain { $builder = $builder.$plain(value); })*
        $(if let Some(Texts(value)) = $settings.$urls { $builder = $builder.$urls(value); })*
        $(if let Some(written) = $settings.$duration {
            let named = |problem| D::Error::custom(format!("{}: {problem}", stringify!($duration)));
            $builder = $builder.$duration(written.duration().map_err(named)?);
        })*
    };
}

/// Reads a map whose keys are the names of this type's methods.
///
/// * A duration is a text such as `"30s"`, `"500ms"` or `"2m"`, with one of the units us, ms, s, m, h and d; or a number of seconds.
/// * `nodes`, `cluster` and the `urls` of `sentinel` are a list, or one URL.
/// * Methods with two arguments have a map: `sentinel` has `master` and `urls`, and `server_login` has `user` and `password`.
///
/// Unknown keys are an error; [`connect`](ClientBuilder::connect) refuses values out of range. The page
/// [settings](crate::docs::settings) has a file in TOML and one in YAML.
impl<'de> Deserialize<'de> for ClientBuilder {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let settings = Settings::deserialize(from)?;
        let mut builder = Client::builder();
        if let Some(Sentinel::Of { master, urls: Texts(urls) }) = settings.sentinel {
            builder = builder.sentinel(master, urls);
        }
        if let Some(Login::Of { user, password }) = settings.server_login {
            builder = builder.server_login(user, password);
        }
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
