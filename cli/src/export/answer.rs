//! The answers to requests over HTTP.

use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response, StatusCode, header};
use serde_json::json;

use super::metrics;
use super::poll::Poll;
use crate::list;

const PAGE: &str = include_str!("page.html");

/// The names by which this server may be called. A page on the web that gets a browser to call this address by a name of its own
/// must not read the answer.
#[derive(Clone)]
pub struct Hosts(Arc<[String]>);

impl Hosts {
    pub fn new(names: &[String]) -> Self {
        Self(names.into())
    }

    /// Any address is one that the browser was told to call, and not a name that points here for a moment.
    fn include(&self, host: &str) -> bool {
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|it| it.is_ascii_digit()) => name,
            _ => host,
        };
        let address = name.trim_start_matches('[').trim_end_matches(']');
        address.parse::<IpAddr>().is_ok()
            || name.eq_ignore_ascii_case("localhost")
            || self.0.iter().any(|known| known.eq_ignore_ascii_case(name))
    }
}

pub fn to(request: &Request<Incoming>, hosts: &Hosts, poll: &Poll) -> Response<Full<Bytes>> {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| hosts.include(host)) {
        return text(
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is unknown here: see --host\n".to_owned(),
        );
    }
    if request.method() != Method::GET && request.method() != Method::HEAD {
        let mut refusal = text(StatusCode::METHOD_NOT_ALLOWED, "this only shows\n".to_owned());
        refusal.headers_mut().insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
        return refusal;
    }
    match request.uri().path() {
        "/" => answer(StatusCode::OK, "text/html; charset=utf-8", PAGE.to_owned()),
        "/metrics" => {
            answer(StatusCode::OK, "text/plain; version=0.0.4; charset=utf-8", metrics::text(poll))
        }
        "/locks.json" => answer(StatusCode::OK, "application/json", json(poll)),
        "/healthz" => match poll.staleness() {
            None => text(StatusCode::OK, "ok\n".to_owned()),
            Some(problem) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{problem}\n")),
        },
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /, /metrics, /locks.json and /healthz\n".to_owned(),
        ),
    }
}

/// As `list --json`, and how old it is.
fn json(poll: &Poll) -> String {
    let mut shown = list::json(&poll.locks, &poll.blocked, poll.staleness().is_none());
    shown["age"] = json!(poll.at.map(|at| at.elapsed().as_secs_f64()));
    shown["problem"] = json!(poll.staleness());
    shown["nodes"] = json!(poll.nodes);
    format!("{shown}\n")
}

fn text(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    answer(status, "text/plain; charset=utf-8", text)
}

fn answer(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = status;
    let headers = [
        (header::CONTENT_TYPE, kind),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            header::CONTENT_SECURITY_POLICY,
            "default-src 'none'; connect-src 'self'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; frame-ancestors 'none'",
        ),
    ];
    for (name, value) in headers {
        response.headers_mut().insert(name, header::HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_points_here_for_a_moment_is_refused() {
        let hosts = Hosts::new(&["locks.example.com".to_owned()]);
        for host in ["127.0.0.1:9910", "[::1]:9910", "10.0.0.7", "LOCALHOST:1", "locks.example.com"]
        {
            assert!(hosts.include(host), "{host}");
        }
        for host in ["evil.example.com", "evil.example.com:9910", "", "127.0.0.1.evil.com:80"] {
            assert!(!hosts.include(host), "{host}");
        }
    }
}
