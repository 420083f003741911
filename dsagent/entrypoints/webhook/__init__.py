"""The admission webhook: gives annotated pods the volumes, containers and environment that bring their datasets."""
