//! Reads a client's settings from a configuration file.

use serde::{Deserialize, Deserializer};

use crate::client::{Client, ClientBuilder};
use crate::config::{Deadlocks, PubSub, SelfWait};
use crate::serial::Seconds;

/// Each field has the name of a method of [`ClientBuilder`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "the settings of a client")]
struct Settings {
    nodes: Option<Vec<String>>,
    sentinel: Option<Sentinel>,
    cluster: Option<Vec<String>>,
    server_login: Option<Login>,
    server_tls: Option<bool>,
    server_database: Option<u32>,
    name: Option<String>,
    name_prefix: Option<String>,
    masters_name: Option<String>,
    ttl: Option<Seconds>,
    response_timeout: Option<Seconds>,
    connect_timeout: Option<Seconds>,
    unavailable_after: Option<Seconds>,
    handoff_window: Option<Seconds>,
    token_retention: Option<Seconds>,
    redisson_fencing: Option<bool>,
    restart_quarantine: Option<Seconds>,
    min_validity: Option<Seconds>,
    synced: Option<u32>,
    pubsub: Option<PubSub>,
    self_wait: Option<SelfWait>,
    warn_held_after: Option<Seconds>,
    deadlocks: Option<Deadlocks>,
    log_findings: Option<bool>,
}

/// The arguments of [`ClientBuilder::sentinel`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a master's name and the URLs of its Sentinels")]
struct Sentinel {
    master: String,
    urls: Vec<String>,
}

/// The arguments of [`ClientBuilder::server_login`].
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "a user and a password")]
struct Login {
    user: String,
    password: String,
}

/// Calls the methods for the settings that are present.
macro_rules! apply {
    ($builder:ident, $settings:ident: $($plain:ident)*; $($seconds:ident)*) => {
        $(if let Some(value) = $settings.$plain { $builder = $builder.$plain(value); })*
        $(if let Some(Seconds(value)) = $settings.$seconds { $builder = $builder.$seconds(value); })*
    };
}

/// Reads a map whose keys are the names of this type's methods. Durations are in seconds, as in `ttl = 30` or
/// `handoff_window = 0.02`. Those of methods with two arguments have a map: `sentinel` has `master` and `urls`, and
/// `server_login` has `user` and `password`. Unknown keys are an error; [`connect`](ClientBuilder::connect) refuses values out of range.
impl<'de> Deserialize<'de> for ClientBuilder {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let settings = Settings::deserialize(from)?;
        let mut builder = Client::builder();
        if let Some(Sentinel { master, urls }) = settings.sentinel {
            builder = builder.sentinel(master, urls);
        }
        if let Some(Login { user, password }) = settings.server_login {
            builder = builder.server_login(user, password);
        }
        apply!(
            builder, settings:
            nodes cluster server_tls server_database name name_prefix masters_name redisson_fencing synced pubsub
            self_wait deadlocks log_findings;
            ttl response_timeout connect_timeout unavailable_after handoff_window token_retention
            restart_quarantine min_validity warn_held_after
        );
        Ok(builder)
    }
}
