"""Adapters: libraries and orchestrators that ask for their budget before they draw noise.

One file a library. Importing it imports the library; without that, the ImportError names the extra
to install. The first line of each says what it cannot see. They need the client, and nothing else
of this project.
"""
