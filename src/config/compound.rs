//! URLs that name a whole deployment, for programs that read one URL from their environment.
//!
//! * `redis+sentinel://[user:password@]host[:port],host[:port],../master[/database]`; the login is for the servers
//! * `redis+cluster://[user:password@]host[:port],host[:port],..`

/// The parts of such a URL. They are URLs again, and not checked yet.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Compound {
    Sentinel {
        master: String,
        sentinels: Vec<String>,
        /// How the servers are reached, at a host that is none.
        servers: String,
    },
    Cluster(Vec<String>),
}

impl Compound {
    /// Returns `None` if the URL names one server, or nothing that makes sense.
    pub(super) fn read(url: &str) -> Option<Self> {
        let (scheme, rest) = url.split_once("://")?;
        let (scheme, kind) = scheme.split_once('+')?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let (login, hosts) = match authority.rsplit_once('@') {
            Some((login, hosts)) => (format!("{login}@"), hosts),
            None => (String::new(), authority),
        };
        let each = |login: &str| {
            hosts.split(',').map(|host| format!("{scheme}://{login}{host}")).collect()
        };
        match kind.to_ascii_lowercase().as_str() {
            "sentinel" => {
                let (master, database) = path.split_once('/').unwrap_or((path, ""));
                Some(Self::Sentinel {
                    master: master.to_owned(),
                    sentinels: each(""),
                    servers: format!("{scheme}://{login}server/{database}"),
                })
            }
            // A cluster has the database 0 alone.
            "cluster" if path.is_empty() || path == "0" => Some(Self::Cluster(each(&login))),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owned(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    #[test]
    fn a_url_of_sentinels_has_their_hosts_the_master_and_the_login_of_the_servers() {
        for (url, master, sentinels, servers) in [
            ("redis+sentinel://a/m", "m", &["redis://a"][..], "redis://server/"),
            (
                "rediss+Sentinel://u:p%2Cq@a:1,[::1]:2/m/3",
                "m",
                &["rediss://a:1", "rediss://[::1]:2"],
                "rediss://u:p%2Cq@server/3",
            ),
            ("redis+sentinel://a,b", "", &["redis://a", "redis://b"], "redis://server/"),
        ] {
            let (master, servers) = (master.to_owned(), servers.to_owned());
            let sentinels = owned(sentinels);
            assert_eq!(
                Compound::read(url),
                Some(Compound::Sentinel { master, sentinels, servers })
            );
        }
    }

    #[test]
    fn a_url_of_a_cluster_has_the_login_for_all_its_nodes() {
        let nodes = owned(&["redis://u:p@a:1", "redis://u:p@b"]);
        for url in ["redis+cluster://u:p@a:1,b", "redis+cluster://u:p@a:1,b/0"] {
            assert_eq!(Compound::read(url), Some(Compound::Cluster(nodes.clone())), "{url}");
        }
        for url in
            ["redis+cluster://a/1", "redis://a,b", "redis+other://a", "unix:///a+sentinel", "a"]
        {
            assert_eq!(Compound::read(url), None, "{url}");
        }
    }
}
