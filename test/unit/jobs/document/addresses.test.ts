import type { lookup } from 'node:dns';
import { describe, expect, it } from 'vitest';
import {
  checkHost,
  guardedLookup,
  listedAddresses,
  publicAddresses,
  type AddressPolicy,
} from '../../../../src/jobs/document/fetch/addresses.js';
import { DOWNLOAD_LIMITS } from '../../../../src/jobs/document/fetch/download.js';
import { checkUrl, httpGet } from '../../../../src/jobs/document/fetch/http-get.js';

/** A resolver that gives these addresses for every name. */
function resolving(...addresses: string[]): typeof lookup {
  return ((_host: string, _options: unknown, callback: (...answer: unknown[]) => void) =>
    callback(
      null,
      addresses.map((address) => ({ address, family: address.includes(':') ? 6 : 4 })),
    )) as never;
}

async function lookedUp(policy: AddressPolicy, ...addresses: string[]): Promise<unknown> {
  return await new Promise((resolve, reject) => {
    guardedLookup(policy, resolving(...addresses))('host.example', { all: true }, (error, found) =>
      error === null ? resolve(found) : reject(error),
    );
  });
}

describe('the policy of url sources', () => {
  const policy = publicAddresses([]);

  it.each([
    '127.0.0.1',
    '127.9.9.9',
    '0.0.0.0',
    '10.1.2.3',
    '172.16.0.1',
    '172.31.255.255',
    '192.168.1.1',
    '100.64.0.1',
    '169.254.169.254',
    '224.0.0.1',
    '255.255.255.255',
    '::',
    '::1',
    'fe80::1',
    'fe80::1%eth0',
    'fd00:ec2::254',
    'ff02::1',
    '::ffff:127.0.0.1',
    '::ffff:7f00:1',
    '::ffff:a9fe:a9fe',
    '::127.0.0.1',
    '::ffff:0:127.0.0.1',
    '64:ff9b::7f00:1',
    '64:ff9b::169.254.169.254',
    '64:ff9b:1::7f00:1',
    '2002:7f00:1::',
    '2002:a9fe:a9fe::1',
    '2001:0:7f00:1::',
    '2001:db8::1',
    '3fff::1',
    '4000::1',
    '5f00::1',
    'fec0::1',
    '0:0:0:0:0:ffff:7f00:0001',
    '0000::1',
    'not an address',
  ])('refuses %s', (address) => {
    expect(policy.refusal(address, 'host.example')).not.toBeNull();
  });

  it.each(['8.8.8.8', '172.32.0.1', '100.128.0.1', '2606:4700::1', '::ffff:8.8.8.8'])('allows %s', (address) => {
    expect(policy.refusal(address, 'host.example')).toBeNull();
  });

  it.each([
    'http://127.0.0.1/',
    'http://127.1/',
    'http://2130706433/',
    'http://017700000001/',
    'http://0x7f000001/',
    'http://0x7f.0.0.1/',
    'http://0177.0.0.1/',
    'http://127.0.0.1./',
    'http://127.0.0.1.:80/',
    'http://１２７.0.0.1/',
    'http://8.8.8.8@127.0.0.1/',
    'http://user:8.8.8.8@[::1]/',
    'http://127.0.0.1#@8.8.8.8/',
    'http://127.0.0.1\\@8.8.8.8/',
    'http://[::ffff:127.0.0.1]/',
    'http://[0:0:0:0:0:ffff:a9fe:a9fe]/latest/meta-data/',
    'http://[64:ff9b::127.0.0.1]/',
    'http://[2002:7f00:1::]/',
    'http://0/',
  ])('refuses %s before any name is resolved', (url) => {
    expect(() => checkUrl(policy, new URL(url))).toThrow(expect.objectContaining({ type: 'AddressRefused' }));
  });

  it.each(['http://8.8.8.8/', 'https://127.0.0.1@8.8.8.8/', 'http://example.org/'])('lets %s pass', (url) => {
    expect(() => checkUrl(policy, new URL(url))).not.toThrow();
  });

  it.each(['http://localhost', 'http://localhost.', 'http://LOCALHOST', 'http://a.localhost'])(
    'refuses %s when it is resolved, with no connection',
    async (url) => {
      const request = { url: `${url}:1/`, policy, limits: DOWNLOAD_LIMITS, signal: new AbortController().signal };
      // Not every system knows the names with a dot.
      await expect(httpGet(request)).rejects.toMatchObject({
        type: url.includes('.') ? expect.stringMatching(/AddressRefused|SourceUnreachable/) : 'AddressRefused',
      });
    },
  );

  it('allows networks, addresses and hosts that are listed, and no others', () => {
    const listed = publicAddresses(['10.1.0.0/16', '127.0.0.1', 'Archive.Example']);
    expect(listed.refusal('10.1.2.3', 'host.example')).toBeNull();
    expect(listed.refusal('10.2.2.3', 'host.example')).toBe('private');
    expect(listed.refusal('127.0.0.1', 'host.example')).toBeNull();
    expect(listed.refusal('127.0.0.2', 'host.example')).toBe('loopback');
    expect(listed.refusal('192.168.0.1', 'archive.example')).toBeNull();
    expect(listed.refusal('192.168.0.1', 'archive.example.')).toBeNull();
    expect(listed.refusal('192.168.0.1', 'notarchive.example')).toBe('private');
    expect(listed.refusal('64:ff9b::7f00:1', 'host.example')).toBe('translated');
    expect(listed.refusal('::ffff:10.1.2.3', 'host.example')).toBeNull();
  });

  it.each(['10.0.0.0/33', '10.0.0/8', 'fe80::/129', '/8'])('refuses the listed network %s', (entry) => {
    expect(() => publicAddresses([entry])).toThrow(expect.objectContaining({ type: 'ConfigInvalid' }));
  });
});

describe('the policy of served files', () => {
  it('allows what is listed only', () => {
    const policy = listedAddresses(['127.0.0.0/8', 'fc00::/7']);
    expect(policy.refusal('127.0.0.1', 'localhost')).toBeNull();
    expect(policy.refusal('fd12::1', 'host')).toBeNull();
    expect(policy.refusal('8.8.8.8', 'host')).toBe('not listed');
    expect(policy.refusal('169.254.169.254', 'host')).toBe('not listed');
  });
});

describe('the lookup', () => {
  it('gives only the addresses that are allowed', async () => {
    const found = await lookedUp(publicAddresses([]), '127.0.0.1', '8.8.8.8', '::1', '2606:4700::1');
    expect(found).toEqual([
      { address: '8.8.8.8', family: 4 },
      { address: '2606:4700::1', family: 6 },
    ]);
  });

  it('fails with the host, the address and the setting when none is', async () => {
    await expect(lookedUp(publicAddresses([]), '169.254.169.254')).rejects.toMatchObject({
      type: 'AddressRefused',
      message: 'The worker does not connect to host.example (169.254.169.254): the address is link-local.',
      details: [{ next: expect.stringContaining('document.allow_urls') as string }],
    });
  });

  it('is not asked for a host that is an address: checkHost is', () => {
    const policy = publicAddresses([]);
    for (const host of ['127.0.0.1', '[::1]', '[::ffff:7f00:1]', new URL('http://0x7f.1/').hostname]) {
      expect(() => checkHost(policy, host), host).toThrow(expect.objectContaining({ type: 'AddressRefused' }));
    }
    expect(() => checkHost(policy, 'host.example')).not.toThrow();
    expect(() => checkHost(policy, '8.8.8.8')).not.toThrow();
  });
});
