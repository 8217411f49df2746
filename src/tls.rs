//! Certificates for `rediss://` addresses: the authorities that are trusted, and the client's own.

use std::fmt;

use redis::{ClientTlsConfig, TlsCertificates};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config::Address;
use crate::error::Error;

/// The certificates of a client, in PEM.
#[derive(Clone, Default)]
pub(crate) struct Certificates {
    /// The trusted authorities; `None` means those that the operating system trusts.
    roots: Option<Vec<u8>>,
    /// The certificate chain that servers may ask for, and its private key.
    identity: Option<(Vec<u8>, Vec<u8>)>,
}

impl Certificates {
    pub(crate) fn trust(&mut self, pem: Vec<u8>) {
        self.roots = Some(pem);
    }

    pub(crate) fn present(&mut self, chain: Vec<u8>, key: Vec<u8>) {
        self.identity = Some((chain, key));
    }

    /// Sets these certificates for all addresses that use TLS.
    pub(crate) fn apply<'a>(
        &self,
        addresses: impl Iterator<Item = &'a mut Address>,
    ) -> Result<(), Error> {
        if self.roots.is_none() && self.identity.is_none() {
            return Ok(());
        }
        self.check()?;
        let mut over_tls = addresses.filter(|address| address.is_tls()).peekable();
        if over_tls.peek().is_none() {
            return Err(Error::config("certificates were given, but no URL begins with rediss://"));
        }
        for address in over_tls {
            let client_tls = self
                .identity
                .clone()
                .map(|(client_cert, client_key)| ClientTlsConfig { client_cert, client_key });
            let certificates = TlsCertificates { client_tls, root_cert: self.roots.clone() };
            let made = redis::Client::build_with_tls(address.info.clone(), certificates);
            // The message must not contain the input, which may be a key.
            let made = made.map_err(|_| Error::config("the certificates cannot be used"))?;
            address.info = made.get_connection_info().clone();
        }
        Ok(())
    }

    /// Checks that everything can be parsed, and names what cannot.
    fn check(&self) -> Result<(), Error> {
        let holds_certificates = |pem: &[u8]| {
            let mut found = CertificateDer::pem_slice_iter(pem).peekable();
            found.peek().is_some() && found.all(|certificate| certificate.is_ok())
        };
        let problem = |what: &str| Err(Error::config(format!("{what}, in PEM")));
        if self.roots.as_deref().is_some_and(|pem| !holds_certificates(pem)) {
            return problem("root_certificates: there must be a certificate");
        }
        if let Some((chain, key)) = &self.identity {
            if !holds_certificates(chain) {
                return problem("client_certificate: there must be a certificate");
            }
            if PrivateKeyDer::from_pem_slice(key).is_err() {
                return problem("client_certificate: there must be a private key");
            }
        }
        Ok(())
    }
}

/// Shows only which certificates are set.
impl fmt::Debug for Certificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("roots", &self.roots.is_some())
            .field("identity", &self.identity.is_some())
            .finish()
    }
}
