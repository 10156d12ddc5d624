/** The version of the package; a test holds it equal to package.json. A constant, so that workflows may read it too. */
export const VERSION = '0.1.0';
