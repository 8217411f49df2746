//! The kinds of URL: user, password and database, a Unix socket, TLS.

use leasehold::Client;
use redis::Value;

use crate::support::{Server, nothing_is_left};

#[tokio::test]
async fn a_url_brings_user_password_and_database() {
    let server = Server::start().await;
    let rules = ["ACL", "SETUSER", "lk", "reset", "on", ">p@ss", "~*", "&*", "+@all"];
    server.command(&rules).await;
    let url = format!("redis://lk:p%40ss@127.0.0.1:{}/3", server.port());
    let client = Client::connect(&url).await.expect("connected");
    let guard = client.mutex("n").lock().await.expect("free");
    assert_eq!(server.command(&["EXISTS", "n"]).await, Value::Int(0), "not in database 0");
    let moved =
        server.command(&["EVAL", "redis.call('SELECT', 3) return redis.call('EXISTS', 'n')", "0"]);
    assert_eq!(moved.await, Value::Int(1));
    guard.unlock().await.expect("held");
}

#[cfg(unix)]
#[tokio::test]
async fn a_unix_socket_serves_as_well() {
    let socket = std::env::temp_dir().join(format!("leasehold-{}.sock", std::process::id()));
    let path = socket.to_str().expect("text");
    let server = Server::with(&["--unixsocket", path]).await;
    let client = Client::connect(&format!("unix://{path}")).await.expect("connected");
    let guard = client.mutex("n").lock().await.expect("free");
    assert_eq!(server.command(&["EXISTS", "n"]).await, Value::Int(1));
    guard.unlock().await.expect("held");
    nothing_is_left(&server, &client, "n").await;
}

#[cfg(feature = "tls")]
mod tls {
    use std::{fs, time::Instant};

    use leasehold::{Client, Error};

    use crate::{
        checks::{AT_ONCE, told},
        support::{Server, Worker, free_port},
    };

    /// A server with a certificate of its own making, its TLS port, and the certificate's file.
    async fn server() -> (Server, String, String) {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
        let port = free_port().to_string();
        let file = |name: &str, text: String| {
            let name = format!("leasehold-{}-{port}.{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::write(&path, text).expect("written");
            path.to_str().expect("text").to_owned()
        };
        let certificate = file("crt", made.cert.pem());
        let key = file("key", made.signing_key.serialize_pem());
        let args = [
            ["--tls-port", &port],
            ["--tls-auth-clients", "no"],
            ["--tls-cert-file", &certificate],
            ["--tls-key-file", &key],
        ];
        let server = Server::with(args.as_flattened()).await;
        (server, port, certificate)
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_server_whose_certificate_the_system_trusts_is_used() {
        let (server, port, certificate) = server().await;
        let mut trusting = Worker::in_environment(&[("SSL_CERT_FILE", &certificate)]);
        trusting.tell(&format!("hold rediss://127.0.0.1:{port} n 30000"));
        assert_eq!(trusting.answer()[0], "held");
        assert_eq!(server.command(&["EXISTS", "n"]).await, redis::Value::Int(1));
    }

    fn file(name: &str, text: &str) -> String {
        let name = format!("leasehold-{}-{}.{name}", std::process::id(), free_port());
        let path = std::env::temp_dir().join(name);
        fs::write(&path, text).expect("written");
        path.to_str().expect("text").to_owned()
    }

    #[tokio::test]
    async fn a_client_trusts_the_authorities_that_it_was_given_and_no_others() {
        let (_server, port, certificate) = server().await;
        let url = format!("rediss://127.0.0.1:{port}");
        let given = fs::read(&certificate).expect("the file");
        let client = Client::builder().nodes([&url]).root_certificates(given).connect().await;
        client
            .expect("trusted")
            .mutex("n")
            .lock()
            .await
            .expect("free")
            .unlock()
            .await
            .expect("held");
        let other = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
        let other = Client::builder().nodes([&url]).root_certificates(other.cert.pem());
        let refused = other.connect_timeout(std::time::Duration::from_millis(500)).connect().await;
        let refused = refused.expect_err("it does not trust the server");
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
    }

    /// Another crate of the program may have enabled what redis-rs needs to obey such a URL.
    #[tokio::test]
    async fn a_url_that_asks_for_no_check_of_the_certificate_reaches_no_server() {
        let (server, port, _) = server().await;
        let met = async || {
            let stats = server.command(&["INFO", "stats"]).await;
            let stats: String = redis::from_redis_value(stats).expect("a text");
            let line = stats.lines().find_map(|line| line.split_once("connections_received:"));
            line.expect("the server counts them").1.parse::<u64>().expect("a number")
        };
        let before = met().await;
        let at = format!("rediss://127.0.0.1:{port}");
        let insecure = [format!("{at}#insecure"), format!(" {at}/0#insecure")];
        let [plain, spaced] = insecure.clone();
        for builder in [
            Client::builder().nodes([plain]),
            Client::builder().nodes([spaced]),
            Client::builder().cluster(insecure.clone()),
            Client::builder().sentinel("m", insecure),
            Client::builder().nodes([format!("rediss+cluster://127.0.0.1:{port}#insecure")]),
            Client::builder().nodes([format!("rediss+cluster://127.0.0.1:{port}/#insecure")]),
            Client::builder().nodes([format!("rediss+sentinel://127.0.0.1:{port}/m#insecure")]),
            Client::builder().nodes([format!("rediss+sentinel://127.0.0.1:{port}/m/0#insecure")]),
        ] {
            let error = builder.connect().await.expect_err("refused");
            assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
            assert!(told(&error).contains("`#insecure`"), "{error}");
        }
        let per_command = 1;
        assert_eq!(met().await - before, per_command, "nobody but this test connected");
    }

    #[tokio::test]
    async fn a_server_that_asks_for_a_certificate_gets_the_clients() {
        let server_made =
            rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
        let made = rcgen::generate_simple_self_signed(["a-client".to_owned()]).expect("made");
        let port = free_port().to_string();
        let (certificate, key) = (server_made.cert.pem(), server_made.signing_key.serialize_pem());
        let files = [file("crt", &certificate), file("key", &key), file("ca", &made.cert.pem())];
        let args = [
            ["--tls-port", &port],
            ["--tls-auth-clients", "yes"],
            ["--tls-cert-file", &files[0]],
            ["--tls-key-file", &files[1]],
            ["--tls-ca-cert-file", &files[2]],
        ];
        let _server = Server::with(args.as_flattened()).await;
        let url = format!("rediss://127.0.0.1:{port}");
        let trusting = || {
            let builder = Client::builder().nodes([&url]).root_certificates(certificate.clone());
            builder.connect_timeout(std::time::Duration::from_secs(10))
        };
        let refused = trusting().connect().await.expect_err("the client shows none");
        assert!(matches!(refused, Error::Unavailable { .. }), "{refused:?}");
        assert!(told(&refused).contains("client_certificate"), "{refused}");
        let known =
            trusting().client_certificate(made.cert.pem(), made.signing_key.serialize_pem());
        let client = known.connect().await.expect("known");
        client.mutex("n").lock().await.expect("free").unlock().await.expect("held");
    }

    #[tokio::test]
    async fn certificates_that_cannot_be_used_are_refused_and_not_shown() {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("made");
        let (pem, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let tls = || Client::builder().nodes(["rediss://127.0.0.1:1"]);
        for (builder, problem) in [
            (tls().root_certificates("canary"), "root_certificates"),
            (tls().root_certificates(key.clone()), "root_certificates"),
            (tls().client_certificate("canary", key.clone()), "there must be a certificate"),
            (tls().client_certificate(pem.clone(), "canary"), "there must be a private key"),
            (tls().client_certificate(pem.clone(), pem.clone()), "there must be a private key"),
            (
                Client::builder().nodes(["redis://127.0.0.1:1"]).root_certificates(pem.clone()),
                "no URL begins with rediss://",
            ),
        ] {
            let error = builder.connect().await.expect_err("refused");
            assert!(matches!(error, Error::InvalidConfig { .. }), "{error:?}");
            let told = told(&error);
            let secret = key.lines().nth(1).expect("a line of the key");
            assert!(told.contains(problem) && !told.contains("canary"), "{told}");
            assert!(!told.contains(secret), "{told}");
        }
    }

    #[tokio::test]
    async fn a_server_whose_certificate_nobody_trusts_is_refused_at_once() {
        let (_server, port, _) = server().await;
        let started_at = Instant::now();
        let error = Client::connect(&format!("rediss://127.0.0.1:{port}")).await;
        let error = error.expect_err("nobody vouches for it");
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.to_string().contains("root_certificates"), "{error}");
        assert!(started_at.elapsed() < 2 * AT_ONCE, "{:?}", started_at.elapsed());
    }

    #[tokio::test]
    async fn a_port_for_tls_is_recognised_behind_a_plain_url() {
        let (_server, port, _) = server().await;
        let builder = Client::builder().nodes([format!("redis://127.0.0.1:{port}")]);
        let error = builder.connect_timeout(AT_ONCE).connect().await.expect_err("it wants TLS");
        assert!(error.to_string().contains("for TLS, write `rediss://`"), "{error}");
    }
}
